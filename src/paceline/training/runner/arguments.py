"""Override a config with command-line arguments: documented names, or --section.key=value for any key."""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin

import msgspec

from paceline.core.errors import UsageError
from paceline.core.yaml_lines import KeyPath, YamlFile
from paceline.training.runner.config import IGNORED_KEYS, KEYS_WITHOUT_EFFECT, ConfigSection, RunConfig
from paceline.training.runner.mindformers_file import is_mindformers_file, with_our_names, without_nulls

_log = logging.getLogger("paceline")

ALIASES: dict[str, str] = {
    "mode": "context.mode",
    "device_id": "context.device_id",
    "device_target": "context.device_target",
    "train_dataset_dir": "train_dataset.data_loader.dataset_dir",
    "dataset_dir": "train_dataset.data_loader.dataset_dir",
    "eval_dataset_dir": "eval_dataset.data_loader.dataset_dir",
    "epochs": "runner_config.epochs",
    "batch_size": "runner_config.batch_size",
    "gradient_accumulation_steps": "runner_config.gradient_accumulation_steps",
    "sink_mode": "runner_config.sink_mode",
    "num_samples": "train_dataset.data_loader.num_samples",
    "resume_or_finetune_checkpoint": "load_checkpoint",
}
"""Arguments of MindFormers whose key has another name; the others (run_mode, load_checkpoint, …) are keys."""
_ARGUMENTS_WITHOUT_EFFECT = frozenset(
    {
        "adapter_id",
        "guide",
        "modal_type",
        "register_path",
        "transform_process_num",
        "trust_remote_code",
    }
)
"""Arguments of MindFormers for features this model does not have."""
_DEFAULTS = RunConfig()
_LISTS = frozenset({"predict_data", "options"})
_FLAG = "True"
_MISSPELT = 0.87
"""Similarity from which an unknown key counts as misspelt: "epoch" for "epochs" is 0.91. No key of MindFormers 0.8 to 2.1
that has no meaning here comes as near to one of ours in its section, except these."""
_NOT_MISSPELT = frozenset({"dtype"})
_MOST_PROBLEMS = 50
_ERROR_PATH = re.compile(r" - at `\$(.*)`$")


@dataclass(frozen=True)
class Override:
    path: KeyPath
    text: str
    argument: str
    """As the user typed it."""


def make_config(file: YamlFile, arguments: Sequence[str]) -> RunConfig:
    """Values of the file, overridden by the arguments and checked; errors name the line or argument and the nearest key.

    A file of MindFormers has keys without a meaning here: they are listed once. All problems are reported together.
    """
    overrides = list(parse(arguments))
    values = json.loads(json.dumps(file.values, default=str))
    foreign = is_mindformers_file(values)
    values = without_nulls(values) if foreign else values
    with_our_names(values)
    ignored, problems = _check_keys(values, file, foreign=foreign)
    for override in overrides:
        _apply(values, override)
    config = _convert(values, file, overrides, problems)
    changed = [key for key in KEYS_WITHOUT_EFFECT if attrgetter(key)(config) != attrgetter(key)(_DEFAULTS)]
    if ignored or changed:
        _log.warning("%s: keys without effect here: %s", file.file, ", ".join([*changed, *ignored]))
    return config


def _convert(
    values: dict[str, Any], file: YamlFile, overrides: Sequence[Override], problems: list[UsageError]
) -> RunConfig:
    """Values that do not fit are taken out one after the other, so that all of them are reported."""
    while True:
        try:
            config = msgspec.convert(values, RunConfig, strict=False)
            break
        except msgspec.ValidationError as error:
            problems.append(_usage_error(error, file, overrides))
            if len(problems) >= _MOST_PROBLEMS or not _take_out(values, _path_of(error)):
                break
    if len(problems) == 1:
        raise problems[0]
    if problems:
        listed = "\n".join(f"  {each}" + (f" ({each.hint})" if each.hint else "") for each in problems)
        raise UsageError(f"{file.file}: {len(problems)} problems\n{listed}")
    return config


def _take_out(values: Any, path: KeyPath) -> bool:
    """False if there is nothing at this path."""
    at = values
    for name in path[:-1]:
        at = (
            at[int(name)]
            if isinstance(at, list) and name.isdecimal()
            else at.get(name)
            if isinstance(at, dict)
            else None
        )
    if not path or not isinstance(at, dict) or path[-1] not in at:
        return False
    del at[path[-1]]
    return True


def parse(arguments: Sequence[str]) -> Iterator[Override]:
    """--key value, --key=value (at the first "=" only), --flag; dashes and underscores are the same.

    >>> [each.text for each in parse(["--remote_save_url=s3://b/?x=1", "--profile", "--predict_data", "a", "b"])]
    ['s3://b/?x=1', 'True', '["a", "b"]']
    """
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise UsageError(
                f"invalid argument {word!r}: arguments start with --",
                hint="examples: --run_mode train, --runner_config.epochs=3",
            )
        name, found, text = word[2:].partition("=")
        if name.replace("-", "_") == "options":
            listed = [text] if found else _values(words)
            yield from parse([f"--{each}" for each in listed])
            continue
        path = _path(name)
        if path[-1] in _LISTS:
            text = json.dumps([text] if found else _values(words))
        elif not found:
            text = words.pop(0) if words and not words[0].startswith("--") else _FLAG
        if path[0] in _ARGUMENTS_WITHOUT_EFFECT:
            _log.warning("--%s has no effect here", path[0])
            continue
        _check_path(path, word)
        yield Override(path, text, word)


def _values(words: list[str]) -> list[str]:
    found = []
    while words and not words[0].startswith("--"):
        found.append(words.pop(0))
    return found


def _path(name: str) -> KeyPath:
    plain = name.replace("-", "_")
    return tuple(ALIASES.get(plain, plain).split("."))


# -- keys --------------------------------------------------------------------------------------------------------------


def _check_keys(values: dict[str, Any], file: YamlFile, *, foreign: bool) -> tuple[list[str], list[UsageError]]:
    """Take unknown keys out of `values`: those to be ignored, because the file is MindFormers', and those that are errors."""
    ignored: list[str] = []
    problems: list[UsageError] = []
    for section, path, known in _unknown_keys(values, RunConfig, ()):
        del section[path[-1]]
        if (not path[:-1] and path[-1] in IGNORED_KEYS) or (foreign and not _is_misspelt(path[-1], known)):
            ignored.append(".".join(path))
        else:
            text = f"{file.where(*path)}: unknown key '{'.'.join(path)}'"
            problems.append(UsageError(text, hint=_nearest(path, known)))
    return ignored, problems


def _unknown_keys(
    values: Any, kind: type[ConfigSection], above: KeyPath
) -> Iterator[tuple[dict[str, Any], KeyPath, dict[str, type[ConfigSection] | None]]]:
    known = _fields(kind)
    for name, value in list(values.items()) if isinstance(values, dict) else ():
        path = (*above, str(name))
        if name not in known:
            yield values, path, known
            continue
        section = known[name]
        if section is not None and value is not None:
            yield from _unknown_keys(value, section, path)


def _is_misspelt(name: str, known: Collection[str]) -> bool:
    """Whether a key of MindFormers' file is rather one of ours with an error in it."""
    return name not in _NOT_MISSPELT and bool(difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELT))


def _check_path(path: KeyPath, word: str) -> None:
    kind: type[ConfigSection] | None = RunConfig
    for depth, name in enumerate(path):
        if kind is None:
            return  # below a list or a free mapping, for example callbacks.0.save_checkpoint_steps
        known = _fields(kind)
        if name not in known:
            raise UsageError(
                f"{word}: unknown key '{'.'.join(path[: depth + 1])}'", hint=_nearest(path[: depth + 1], known)
            )
        kind = known[name]


def _nearest(path: KeyPath, known: dict[str, type[ConfigSection] | None]) -> str:
    """Hint with the most similar key by its last part; keys of the same section first."""
    above = ".".join(path[:-1]) + "." if path[:-1] else ""
    candidates = {key.rpartition(".")[2]: key for key in _all_keys(RunConfig, "")} | ALIASES
    candidates |= {name: above + name for name in known}
    close = difflib.get_close_matches(path[-1], candidates, n=1)
    return f"did you mean '{candidates[close[0]]}'?" if close else f"known here: {', '.join(sorted(known))}"


def _all_keys(kind: type[ConfigSection], above: str) -> Iterator[str]:
    for name, section in _fields(kind).items():
        yield above + name
        if section is not None:
            yield from _all_keys(section, f"{above}{name}.")


def _fields(kind: type[ConfigSection]) -> dict[str, type[ConfigSection] | None]:
    """Key → type of its section, or None."""
    return {field.name: _section(field.type) for field in msgspec.structs.fields(kind)}


def _section(kind: Any) -> type[ConfigSection] | None:
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, ConfigSection):
            return each
    return None


# -- values ------------------------------------------------------------------------------------------------------------


def _apply(values: dict[str, Any], override: Override) -> None:
    at: Any = values
    for depth, name in enumerate(override.path[:-1]):
        here = ".".join(override.path[: depth + 1])
        if isinstance(at, list):
            at = at[_index(at, name, override)]
        else:
            if at.get(name) is None:
                at[name] = {}
            at = at[name]
        if not isinstance(at, (dict, list)):
            raise UsageError(f"{override.argument}: {here} is not a section", hint=f"its value is {at!r}")
    last = override.path[-1]
    value = _literal(override.text, free=_is_free(override.path))
    if isinstance(at, list):
        at[_index(at, last, override)] = value
    else:
        at[last] = value


def _index(items: list[Any], name: str, override: Override) -> int:
    if not name.isdecimal() or int(name) >= len(items):
        raise UsageError(
            f"{override.argument}: item {name} not found in a list of {len(items)}", hint="items count from 0"
        )
    return int(name)


def _is_free(path: KeyPath) -> bool:
    """Whether the key has no declared type, so that its value is parsed by its form."""
    kind: type[ConfigSection] | None = RunConfig
    for name in path:
        if kind is None:
            return True
        kind = _fields(kind)[name]
    return False


def _literal(text: str, *, free: bool) -> Any:
    """Parse a value; text of keys with a declared type is converted later. True and False in any case."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("none", "null"):
        return None
    if free or text[:1] in "[{":
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _usage_error(error: msgspec.ValidationError, file: YamlFile, overrides: Sequence[Override]) -> UsageError:
    text = str(error)
    path = _path_of(error)
    what = _ERROR_PATH.sub("", text) + _choices(path)
    key = ".".join(path)
    for override in overrides:
        if override.path[: len(path)] == path or path[: len(override.path)] == override.path:
            return UsageError(f"{override.argument}: {key}: {what} ({override.text!r})")
    return UsageError(f"{file.where(*path)}: {key}: {what}")


def _path_of(error: msgspec.ValidationError) -> KeyPath:
    found = _ERROR_PATH.search(str(error))
    return tuple(part for part in re.split(r"[.\[\]]", found[1]) if part) if found else ()


def _choices(path: KeyPath) -> str:
    """Allowed values of a key with a fixed choice."""
    kind: type[ConfigSection] | None = RunConfig
    for name in path:
        field = next((each for each in msgspec.structs.fields(kind) if each.name == name), None) if kind else None
        if field is None:
            return ""
        if get_origin(field.type) is Literal:
            return f"; one of {', '.join(get_args(field.type))}"
        kind = _section(field.type)
    return ""
