"""JSON as a guide prints it: comments, trailing commas, the last bracket missing."""

from __future__ import annotations

import json

import pytest

from paceline.core.json_comments import plain_json

AS_PRINTED = """
{
  "access_config": {           // access to OBS
      "access_key": "AK//x",   // a value may hold two slashes
       "secret_access_key": "S\\"K",
       "server": "https://obs.cn-north-4.example", /* and
       more */
       "obs_endpoint": "",
}
"""


def test_comments_trailing_commas_and_a_missing_bracket_are_read() -> None:
    assert json.loads(plain_json(AS_PRINTED))["access_config"] == {
        "access_key": "AK//x",
        "secret_access_key": 'S"K',
        "server": "https://obs.cn-north-4.example",
        "obs_endpoint": "",
    }


@pytest.mark.parametrize("cut", range(1, len(AS_PRINTED.strip()) - 2, 7))
def test_a_file_that_was_cut_inside_a_value_stays_malformed(cut: int) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(plain_json(AS_PRINTED.strip()[:cut]))


@pytest.mark.parametrize("value", [{"a": [1, {"b": "x,]}//"}], "c": None}, [], "plain", 3])
def test_proper_json_means_what_it_meant(value: object) -> None:
    assert json.loads(plain_json(json.dumps(value, indent=1))) == value
