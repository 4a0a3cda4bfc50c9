"""A model folder onto the Hugging Face hub."""

from pathlib import Path
from typing import Any

from didlm.locate import FILES, INSTALL


def push(folder: Path, repo: str, private: bool, token: str | None, message: str) -> str:
    """Upload the files of a model; the repository is made if need be.

    Args:
        folder: of the model.
        repo: `owner/name` on the hub.
        private: whether others must not see it.
        token: of the hub; None for the one of `hf auth login`.
        message: of the commit.

    Returns:
        The address of the model.

    Raises:
        ValueError: in one sentence, if the hub does not take it.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors, utils
    except ImportError:
        raise ValueError(f"pushing a model takes a library: {INSTALL}") from None
    try:
        if "/" not in repo:
            raise errors.HFValidationError
        utils.validate_repo_id(repo)
    except errors.HFValidationError:
        raise ValueError(f"'{repo}' is no id for the hub: it must be owner/name") from None
    api = hub.HfApi(token=token)
    try:
        url = api.create_repo(repo, private=private, exist_ok=True)
        if private and not api.model_info(repo).private:  # made earlier, and seen by all
            raise ValueError(f"{repo} is public on the hub: make it private there, then push again")
        api.upload_folder(
            repo_id=repo, folder_path=folder, allow_patterns=FILES, commit_message=message
        )
    except errors.OfflineModeIsEnabled:
        raise _refused(repo, "the hub is switched off (HF_HUB_OFFLINE)") from None
    except errors.HfHubHTTPError as error:
        raise _refused(repo, _reason(error)) from None
    except ValueError:
        raise
    except errors.LocalTokenNotFoundError:
        raise _refused(repo, "log in with `hf auth login`") from None
    except Exception:  # of whichever library speaks to the network
        raise _refused(repo, "the Hugging Face hub cannot be reached") from None
    return str(url)


def _refused(repo: str, reason: str) -> ValueError:
    return ValueError(f"cannot push to {repo}: {reason}")


def _reason(error: Any) -> str:
    status = getattr(error.response, "status_code", None)
    if status == 401:
        return "the hub does not know you; log in with `hf auth login`"
    if status in (403, 404):
        return "you may not write there; see whose it is, and what your token allows"
    return f"the hub answered {status}" if status else "the hub refused it"
