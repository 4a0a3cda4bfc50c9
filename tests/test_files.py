"""Files are written whole or not at all, and nothing else is touched."""

import os
import stat

import pytest

from didlm.files import check_folder, write_text


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_text(os.devnull, "gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


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
    with pytest.raises(ValueError, match=r"cannot make the folder .*: .*file is a file"):
        check_folder(tmp_path / "file" / "below")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
