"""Tensor bytes as NumPy numbers, including bfloat16."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.checkpoint.tensors.dtypes import DType
from paceline.core.errors import UsageError


def as_numbers(data: npt.NDArray[np.uint8], dtype: DType) -> npt.NDArray[Any]:
    if dtype.name == "BFloat16":
        if find_spec("ml_dtypes") is None:
            raise UsageError(
                "ml_dtypes is not installed",
                hint="computing with BFloat16 needs it: pip install 'paceline[checkpoint]'",
            )
        import ml_dtypes

        return data.view(ml_dtypes.bfloat16)
    return data.view(np.dtype(dtype.name.lower()))
