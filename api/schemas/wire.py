"""The base of all wire models."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """A model that the server sends. It can be made from an object with the same attributes."""

    model_config = ConfigDict(from_attributes=True, frozen=True)
