"""Sizes of memory, in words."""

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def power(most: int) -> int:
    """The unit that fits the largest of some sizes."""
    return next((step for step in range(len(UNITS) - 1) if most < 1000 ** (step + 1)), len(UNITS) - 1)


def digits(value: float) -> str:
    """A number with three significant digits, or all digits before the point."""
    if not value:
        return "0"
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def readable(size: int) -> str:
    """Bytes with their unit: 26.9 GB."""
    step = power(size)
    return f"{digits(size / 1000**step)} {UNITS[step]}" if step else f"{size} B"
