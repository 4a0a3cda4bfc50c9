"""Files are written whole or not at all, and nothing else is touched."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from didlm.files import check_folder, check_place, write_text


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced() -> None:
    check_place(Path(os.devnull))
    write_text(Path(os.devnull), "gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="pipes have no paths here")
def test_a_pipe_is_written_to(tmp_path) -> None:
    reading, writing = os.pipe()
    place = Path(f"/dev/fd/{writing}")
    check_place(place)
    write_text(place, "through")
    os.close(writing)
    with os.fdopen(reading) as file:
        assert file.read() == "through"


def test_files_beside_it_are_left_alone(tmp_path) -> None:
    (tmp_path / "a.json.tmp").write_text("mine")
    write_text(tmp_path / "a.json", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.json.tmp"]
    assert (tmp_path / "a.json.tmp").read_text() == "mine"


def test_rights_are_kept_and_new_files_get_the_usual_ones(tmp_path) -> None:
    old = tmp_path / "old"
    old.write_text("")
    old.chmod(0o640)
    write_text(old, "new")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    (tmp_path / "usual").write_text("")
    write_text(tmp_path / "new", "new")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_fails_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("old")

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fdopen", fail)
    with pytest.raises(OSError, match="no space left"):
        write_text(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_folders_that_cannot_be_made_are_refused_before_the_work(tmp_path) -> None:
    check_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nothing")
    for name in ("file", "link"):
        for folder in (tmp_path / name, tmp_path / name / "below"):
            with pytest.raises(
                ValueError, match=rf"cannot make the folder .*: .*{name} is not a folder"
            ):
                check_folder(folder)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link"]


def test_places_that_take_no_file_are_refused_before_the_work(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere/file")
    (tmp_path / "fine").symlink_to("later")
    for name in ("new", "fine", "folder/new", "n" * 200):
        check_place(tmp_path / name)
    for name, reason in [
        ("nowhere/file", "there is no folder .*nowhere"),
        ("folder", "it is a folder"),
        ("link", "No such file or directory"),
        ("n" * 250, "File name too long"),  # a file is written under a longer name first
    ]:
        with pytest.raises(ValueError, match=f"cannot write .*: {reason}"):
            check_place(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fine", "folder", "link"]
    assert not list((tmp_path / "folder").iterdir())


def test_what_the_system_forbids_is_refused_before_the_work(tmp_path, monkeypatch) -> None:
    def forbid(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", forbid)
    with pytest.raises(ValueError, match="cannot write .*figures.json: Permission denied"):
        check_place(tmp_path / "figures.json")
    with pytest.raises(ValueError, match="cannot write in the folder .*runs/a: Permission denied"):
        check_folder(tmp_path / "runs" / "a")
