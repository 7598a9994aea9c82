"""Wire models of the use of devices."""

from pydantic import BaseModel

from regroup.api.schemas.wire import Wire


class UsageRow(Wire):
    """Use of one group of jobs. Fields by which the report is not grouped are null."""

    project: str | None
    """Name of the project."""
    user: str | None
    """Identity that submitted the jobs."""
    accelerator: str | None
    """Accelerator class: GPU type, `cuda` for a GPU of an unknown type, `cpu` for ranks without a GPU."""
    job: str | None
    """Id of the job."""
    job_name: str | None
    """Name of the job."""
    device_hours: float
    """Hours for which devices were held, multiplied by their number."""
    cost: float | None
    """Cost of the device-hours that have a price; null if none of them has one."""
    currency: str | None
    """Currency of the cost; null if the server has no price table."""
    unpriced_device_hours: float
    """Device-hours on accelerators without a price. `cost` does not contain them."""
    unpriced: tuple[str, ...]
    """Accelerators without a price."""


class UsagePage(BaseModel):
    """Use of devices in a window of time, in the order of the groups."""

    from_s: float
    """Start of the window, Unix seconds."""
    to_s: float
    """End of the window, which is not part of it. Devices in use count until now."""
    rows: list[UsageRow]
    """The rows of this page."""
    next_page_token: str
    """Token of the next page; empty on the last one."""
