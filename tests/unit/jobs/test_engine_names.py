"""Engine names of ModelArts' first interface are found among those of the second; what is not offered is refused."""

from __future__ import annotations

import pytest

from paceline.core.errors import UsageError
from paceline.jobs.description import FrameworkEngine
from paceline.jobs.modelarts.engine_names import choose_engine


def engine(version: str) -> FrameworkEngine:
    return FrameworkEngine(name="Ascend-Powered-Engine", version=version)


OFFERED = [
    engine(version)
    for version in (
        "mindspore_1.3.0-cann_5.0.2-py_3.7-euler_2.8.3-aarch64",
        "mindspore_1.3.0-cann_5.0.2-py_3.7-euler_2.8.3-x86_64",
        "mindspore_2.3.0-cann_8.0.rc1-py_3.9-euler_2.10.7-aarch64",
        "pytorch_2.1.0-cann_8.0.rc1-py_3.9-euler_2.10.7-aarch64",
    )
]


def test_an_old_name_is_the_one_engine_it_can_mean() -> None:
    found = choose_engine(engine("MindSpore-1.3-cann_5.0.2-python3.7-euleros2.8-aarch64"), OFFERED)
    assert found == OFFERED[0]
    assert choose_engine(OFFERED[3], OFFERED) == OFFERED[3]


def test_what_is_not_offered_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match="is not offered") as caught:
        choose_engine(engine("MindSpore-1.5-cann_5.0.3-python3.7-euleros2.8-aarch64"), OFFERED)
    assert all(each.version in str(caught.value) for each in OFFERED)
    with pytest.raises(UsageError, match="could be several"):
        choose_engine(engine("MindSpore-1.3-cann_5.0.2"), OFFERED)
    with pytest.raises(UsageError, match="is not offered"):
        choose_engine(engine("TensorFlow-1.15"), OFFERED)


def test_nothing_is_refused_where_nothing_is_listed() -> None:
    assert choose_engine(engine("anything"), []) == engine("anything")
