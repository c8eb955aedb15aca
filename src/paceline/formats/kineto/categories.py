"""Categories of Kineto's events, as SQL over a column `cat`; capital letters are those of torch 1.8."""

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
"""What ran on the device."""

DEVICE_CATEGORIES = ", ".join(f"'{category}'" for category in DEVICE)
IS_RUNTIME = "(cat = 'Runtime' OR suffix(cat, '_runtime') OR suffix(cat, '_driver'))"
"""Calls that launch work, copy, wait, allocate."""
LOADING = "enumerate(DataLoader)#"
"""How the names of torch's DataLoader begin."""
DAY, MINUTE = 86_400 * 10**9, 60 * 10**9
"""ns."""


def is_runtime(category: str | None) -> bool:
    """As IS_RUNTIME."""
    return category is not None and (category == "Runtime" or category.endswith(("_runtime", "_driver")))
