"""Numbers of bytes as text for people, in decimal units as the console shows them. Pure."""

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(nbytes: float) -> str:
    """Format a number of bytes with three digits: `512 B`, `1.5 MB`."""
    value, unit = _scaled(nbytes)
    return f"{value:.3g} {unit}"


def part_text(done_bytes: float, total_bytes: float) -> str:
    """Format a part of a number of bytes, in the unit of the whole: `0.2 of 4.0 GB`."""
    total, unit = _scaled(total_bytes)
    done = done_bytes / 1000 ** _UNITS.index(unit)
    return f"{done:.1f} of {total:.1f} {unit}"


def _scaled(nbytes: float) -> tuple[float, str]:
    """Return the number in the unit in which it has at most three digits before the point."""
    value = float(nbytes)
    for unit in _UNITS[:-1]:
        if abs(value) < 999.5:  # from there on, it would be rounded to four digits
            return value, unit
        value /= 1000
    return value, _UNITS[-1]
