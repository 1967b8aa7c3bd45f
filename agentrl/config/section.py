"""What every section of the settings is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
"""Of a task or a clone: it becomes part of a path."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
