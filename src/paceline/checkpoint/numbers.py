"""Bytes as numbers, for the few places that calculate."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.dtypes import DType
from paceline.errors import UsageError


def numbers(data: npt.NDArray[np.uint8], dtype: DType) -> npt.NDArray[Any]:
    if dtype.name == "BFloat16":
        if find_spec("ml_dtypes") is None:
            raise UsageError(
                "ml_dtypes is not installed", hint="pip install 'paceline[checkpoint]' to calculate with BFloat16"
            )
        import ml_dtypes

        return data.view(ml_dtypes.bfloat16)
    return data.view(np.dtype(dtype.name.lower()))
