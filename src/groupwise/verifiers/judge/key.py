"""The API key: read once, shown never."""

import os
import re
from pathlib import Path

from pydantic import SecretStr

from groupwise.errors import ConfigError
from groupwise.verifiers.judge.config import JudgeConfig


def read_key(config: JudgeConfig) -> SecretStr | None:
    """The key from the variable or file that the configuration names; None when it names none.

    Raises:
        ConfigError: it is not there or cannot be a key; names the place, not what was found.
    """
    if config.api_key_variable:
        where = f"the environment variable {config.api_key_variable} (verifier.judge.api_key_variable)"
        found = os.environ.get(config.api_key_variable, "")
    elif config.api_key_file:
        where = f"the file {config.api_key_file} (verifier.judge.api_key_file)"
        found = _read(Path(config.api_key_file).expanduser(), where)
    else:
        return None
    if not re.fullmatch(r"[!-~]+", found.strip()):
        raise ConfigError(f"{where} holds no API key: one word of printable ASCII characters is needed")
    return SecretStr(found.strip())


def _read(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from None


def scrubbed(text: str, key: SecretStr | None) -> str:
    """The text without the key, should a server repeat it."""
    return text.replace(key.get_secret_value(), "[API key]") if key else text
