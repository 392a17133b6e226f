"""What `sqair fit` proposes for a clip it has looked at: scale of frames, sizes and priors of the model, training.

Everything follows from one rule: the usual thing should be as large in the model's frame as digits are in that of the
paper's model, about 26 pixels of 64. What the user has set is taken as it is, and the rest follows from that.
"""

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from sqair.config import COMING_AND_GOING, PRESETS, ModelConfig, Preset, TrainConfig
from sqair.data.background import Subtraction
from sqair.data.camera import Camera, Quantiles, Sizes
from sqair.data.frames import scaled_size
from sqair.data.survey import Survey
from sqair.training.recipe import scaled

T = TypeVar("T")

LONG, SIDE = 26, 64
"""The longer side of the usual thing, and the side of a window, in scaled pixels."""
SMALLEST_SIDE = 16
"""Of a window."""
BEYOND, TIGHT = 0.25, 2.0
"""Share of its sides by which a window may reach beyond a frame of at most so many windows' area."""
NEARLY = 1.25
"""A frame of at most so many windows' area is seen as a whole."""
CLOSE = 0.15
"""Windows keep their usual side while the usual thing is nearly as large as usual."""
MOST_SLOTS, USUAL_SLOTS = 6, 3
SMALLEST_GLIMPSE, ROUNDING = 8, 0.1
STD, RAW_STD, STD_SHARE = (0.2, 0.3), (0.05, 0.3), 0.375
"""Least and largest output std, of subtracted and of raw frames, and its share of what sets things off: the paper's 0.3
is for bright things on black."""
SLOW, FAST = 0.05, 0.5
"""Frames are left out while things go less than the first, in the median, and at most the second, in their sizes."""
PRESENCE_DELAY = 500
"""Steps for which presence is not learnt before a background, where an object that is drawn badly does harm."""
SHORTEST, LONGEST = 5, 10
"""Frames of a sequence."""
PATIENCE = 10
"""Evaluations without a new best after which training stops."""
WIDER = 1.15
"""A box is so much wider than a blob: what fades at the edges belongs to the thing."""
SPARE = 1.5
"""A box may be so many times larger than large things are."""
COST, SURPLUS, EVIDENCE = 0.03, 0.5, 0.1
"""Shares of a thing's nats: what its discovery costs at first, what an object too many costs in a frame while training,
and what tracking asks of an object."""
LEAST_FILLED = 0.4
"""Share of its box that a thing fills, at least."""
STDS = (0.25, 0.7)
"""Least and largest prior std of a size, in logits."""


@dataclass(frozen=True)
class Wishes:
    """What the user has set; None and names that are not given are proposed."""

    height: int | None = None
    crop: tuple[int, int] | None = None
    length: int | None = None
    stride: int | None = None
    networks: Literal["mlp", "conv"] = "mlp"
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    given: Collection[str] = ()
    """Dotted names of the fields of `model` and `train` that were set."""
    background: Literal["subtract", "running", "learned"] = "subtract"
    """Taken away beforehand, or a part of the model."""


class Row(NamedTuple):
    """A line of the table that is shown."""

    what: str
    value: str
    why: str


class Proposal(NamedTuple):
    """How a model of a camera is made."""

    camera: Camera
    length: int
    model: ModelConfig
    train: TrainConfig
    """For its own number of steps, and before the user's wishes; `recipe` knows both."""

    @property
    def sizes(self) -> Sizes:
        """Of things, in scaled pixels."""
        return in_scaled_pixels(self.camera.objects, self.camera.height / self.camera.size[0])

    @property
    def beyond(self) -> float:
        """How far sequences reach beyond the frame: where one shows most of it, they would hardly differ otherwise."""
        frame, crop = scaled_size(self.camera.size, self.camera.height), self.camera.crop
        is_tight = frame[0] * frame[1] <= TIGHT * crop[0] * crop[1]
        return BEYOND if is_tight and self.model.background == "none" else 0.0

    def recipe(self, steps: int, wishes: Wishes) -> TrainConfig:
        """How to train for so many steps."""
        config = scaled(self.train, steps)
        config = dataclasses.replace(config, presence_delay=min(config.presence_delay, steps // 4))
        return dataclasses.replace(with_given(config, wishes.train, wishes.given, "train."), steps=steps)

    def preset(self, data: str, train: TrainConfig) -> Preset:
        """All settings of the training, on the sequences of a file."""
        config = dataclasses.replace(PRESETS["sqair-mlp"].data, name=data, length=self.length, size=self.model.image)
        return Preset(self.model, config, train)


def propose(seen: Survey, subtraction: Subtraction, wishes: Wishes, *, on_cpu: bool) -> Proposal:
    """What fits a clip in which something moves."""
    if seen.objects is None:
        raise ValueError("nothing moves")
    height = propose_height(seen.size, seen.objects) if wishes.height is None else wishes.height
    frame = scaled_size(seen.size, height)
    sides = in_scaled_pixels(seen.objects, frame[0] / seen.size[0])
    crop = propose_crop(frame, longer(sides)) if wishes.crop is None else wishes.crop
    crop = (crop[0] or frame[0], crop[1] or frame[1])
    stride = propose_stride(seen) if wishes.stride is None else wishes.stride
    length = propose_length(seen, stride) if wishes.length is None else wishes.length
    share = crop[0] * crop[1] / (frame[0] * frame[1])
    model = propose_model(seen, sides, crop, share=share, networks=wishes.networks, on_cpu=on_cpu)
    if wishes.background != "subtract":
        model = with_background(model, seen, frame, wishes.background)
    if "model.scale_limits" in wishes.given:
        model = dataclasses.replace(model, width_limits=ModelConfig().width_limits)  # they were given for both
    model = with_given(model, wishes.model, wishes.given, "model.")
    base = PRESETS["tiny" if on_cpu else "sqair-mlp"].train
    strength = seen.brightness if model.background == "none" else seen.contrast
    worth = nats_of_a_thing(seen, sides, strength, model.output_std)
    evidence = float(max(1, round(EVIDENCE * worth)))  # 0 would mean that it is not known
    camera = Camera(subtraction, frame[0], seen.size, crop, stride, seen.objects, seen.scene, evidence)
    is_counted = model.background == "none" and wishes.train.bound != "fivo"
    train = dataclasses.replace(
        base,
        patience=PATIENCE,
        first_length=min(base.first_length, length),
        discovery_cost=float(round(COST * worth)),
        surplus_cost=float(round(SURPLUS * worth)) if is_counted else 0.0,
        discovery_dropout=COMING_AND_GOING.discovery_dropout,
        presence_delay=base.presence_delay if model.background == "none" else PRESENCE_DELAY,
    )
    return Proposal(camera, length, model, train)


def propose_height(size: tuple[int, int], objects: Sizes) -> int:
    """The height at which the usual thing is as large as a digit; frames are never scaled up."""
    return max(1, min(size[0], round(size[0] * LONG / longer(objects))))


def longer(sides: Sizes) -> float:
    """The longer side of the usual thing."""
    return max(sides.width[1], sides.height[1])


def in_scaled_pixels(objects: Sizes, ratio: float) -> Sizes:
    """Sizes in a scaled frame."""
    return Sizes(*((low * ratio, middle * ratio, high * ratio) for low, middle, high in dataclasses.astuple(objects)))


def propose_crop(frame: tuple[int, int], long: float) -> tuple[int, int]:
    """Height and width of a window, in proportion to the usual thing, or all of a frame that is not much larger."""
    share = long / LONG
    side = SIDE if abs(share - 1) <= CLOSE else max(SMALLEST_SIDE, 4 * round(SIDE * share / 4))
    if frame[0] * frame[1] <= NEARLY * side**2:
        return frame
    return min(side, frame[0]), min(side, frame[1])


def propose_stride(seen: Survey) -> int:
    """More than 1 only if things hardly move from frame to frame."""
    _, usual, fast = seen.motion
    return max(1, min(int(SLOW / usual), int(FAST / fast))) if usual > 0 else 1


def propose_length(seen: Survey, stride: int) -> int:
    """Frames in which the usual thing goes as far as it is large, within limits; a short clip has none to spare."""
    usual, frames = seen.motion[1] * stride, seen.part[1] - seen.part[0]
    wanted = round(1 / usual) if usual > 0 else LONGEST
    return max(2, min(max(SHORTEST, min(LONGEST, wanted)), frames // (4 * stride)))


def propose_model(
    seen: Survey, sides: Sizes, crop: tuple[int, int], *, share: float, networks: Literal["mlp", "conv"], on_cpu: bool
) -> ModelConfig:
    """Sizes and priors of the model; `sides` are those of things in its frame, which is a `share` of the clip's."""
    base = PRESETS["sqair-pedestrians" if networks == "conv" else "tiny" if on_cpu else "sqair-mlp"].model
    slots = min(MOST_SLOTS, max(2 if share == 1 else USUAL_SLOTS, math.ceil(share * seen.counts[2])))
    x, y = propose_extent(sides.width, crop[1]), propose_extent(sides.height, crop[0])
    return dataclasses.replace(
        base,
        image=crop,
        glimpse=(fitting(sides.height[1], crop[0]), fitting(sides.width[1], crop[1])),
        max_objects=slots,
        output_std=round(min(STD[1], max(STD[0], STD_SHARE * seen.brightness)), 2),
        scale_limits=y.limits,
        width_limits=x.limits,
        where_prior_mean=(x.mean, y.mean, 0.0, 0.0),
        where_prior_std=(x.std, y.std, *base.where_prior_std[2:]),
    )


def with_background(
    model: ModelConfig, seen: Survey, frame: tuple[int, int], kind: Literal["running", "learned"]
) -> ModelConfig:
    """The same for raw frames, from which things stand out less than from black."""
    std = round(min(RAW_STD[1], max(RAW_STD[0], STD_SHARE * seen.contrast)), 3)
    size = frame if kind == "learned" else (0, 0)
    return dataclasses.replace(model, output_std=std, background=kind, background_size=size)


def nats_of_a_thing(seen: Survey, sides: Sizes, strength: float, output_std: float) -> float:
    """How much less likely a frame is in which the usual thing, which stands out so much, is left out."""
    box = sides.width[1] * sides.height[1]
    scale = box / (seen.objects.width[1] * seen.objects.height[1]) if seen.objects else 1.0
    seen_area = scale * seen.foreground * seen.size[0] * seen.size[1] / max(1.0, seen.counts[1])
    area = min(box, max(LEAST_FILLED * box, seen_area))
    return area * strength**2 / (2 * output_std**2)


def fitting(side: float, most: int) -> int:
    """A side of a glimpse: a multiple of four, for the subpixel decoder, that is no smaller than the usual thing."""
    return min(max(SMALLEST_GLIMPSE, 4 * math.ceil(side / 4 - ROUNDING)), 4 * (most // 4))


class Extent(NamedTuple):
    """How large windows of glimpses are along an axis."""

    limits: tuple[float, float]
    """Of the scale."""
    mean: float
    """Of its prior, in logits ..."""
    std: float
    """... and its standard deviation."""


def propose_extent(side: Quantiles, most: int) -> Extent:
    """For things of such sides in a frame of so many pixels."""
    small, usual, large = (WIDER * each / most for each in side)
    low = round(min(0.5, max(0.01, small / 2)), 3)
    high = round(min(1.0, max(SPARE * large, 2 * low)), 3)

    def logit(share: float) -> float:
        place = min(0.98, max(0.02, (share - low) / (high - low)))
        return math.log(place / (1 - place))

    std = min(STDS[1], max(STDS[0], (logit(large) - logit(small)) / 2.563))
    return Extent((low, high), round(logit(usual), 2), round(std, 2))


def with_given(proposed: T, wished: T, given: Collection[str], prefix: str) -> T:
    """A config with those fields of another that were given, by their dotted names."""
    changes: dict[str, Any] = {}
    for item in dataclasses.fields(proposed):  # pyright: ignore[reportArgumentType]
        old, new, name = getattr(proposed, item.name), getattr(wished, item.name), prefix + item.name
        if dataclasses.is_dataclass(old):
            changes[item.name] = with_given(old, new, given, f"{name}.")
        elif name in given:
            changes[item.name] = new
    return dataclasses.replace(proposed, **changes)  # pyright: ignore[reportArgumentType]


def table(seen: Survey, proposal: Proposal, wishes: Wishes) -> list[Row]:
    """What is proposed, and why, for the person who waits; what was given needs no reason."""
    given = {"frame height": wishes.height, "window": wishes.crop, "stride": wishes.stride, "sequences": wishes.length}
    set_by_hand = {name for name, value in given.items() if value is not None}
    set_by_hand |= {row for row, name in NAMES.items() if name in wishes.given}
    as_wished = proposal._replace(train=with_given(proposal.train, wishes.train, wishes.given, "train."))
    return [row._replace(why="as you said") if row.what in set_by_hand else row for row in reasons(seen, as_wished)]


NAMES = {"glimpse": "model.glimpse", "objects": "model.max_objects", "output std": "model.output_std"}
NAMES |= {"size of a box": "model.scale_limits", "networks": "model.width", "discovery cost": "train.discovery_cost"}
NAMES |= {"surplus cost": "train.surplus_cost"}
"""Rows, and the fields that they show."""


def reasons(seen: Survey, proposal: Proposal) -> list[Row]:
    """All rows, as if everything were proposed."""
    camera, model, objects = proposal.camera, proposal.model, seen.objects
    if objects is None:
        raise ValueError("nothing moves")
    sides = in_scaled_pixels(objects, camera.height / camera.size[0])
    frame = scaled_size(seen.size, camera.height)
    whole = "the whole frame" if camera.crop == frame else f"a part of the frame of {by(frame)}"
    if proposal.beyond:
        whole += f", in sequences up to {proposal.beyond:.0%} beyond its edges"
    low, _, high = seen.counts
    usual = seen.motion[1] * camera.stride
    first = min(proposal.train.first_length, proposal.length)
    return [
        Row("frame height", str(camera.height), f"things of {pixels(objects)} become {pixels(sides)}"),
        Row("window", by(camera.crop), whole),
        Row("glimpse", by(model.glimpse), "as large as the usual thing"),
        Row("objects", str(model.max_objects), f"{low:.0f} to {high:.0f} at once in the whole frame"),
        Row("background", *behind(seen, proposal)),
        Row("output std", f"{model.output_std:g}", "a share of that"),
        Row("size of a box", sizes_of_boxes(model), "shares of the window: width, height"),
        Row("stride", str(camera.stride), f"things go {usual:.2f} of their size from frame to frame"),
        Row("sequences", f"{first} to {proposal.length} frames", f"{seen.part[1] - seen.part[0]} frames to learn from"),
        Row("discovery cost", f"{proposal.train.discovery_cost:g} nats", "a small share of what one thing is worth"),
        Row("surplus cost", f"{proposal.train.surplus_cost:g} nats", "of an object more than there are, in a frame"),
        Row("networks", f"{model.networks}, width {model.width}", "--networks conv is slower, and finer"),
    ]


def sizes_of_boxes(model: ModelConfig) -> str:
    """Smallest and largest width and height."""
    widths = model.width_limits if any(model.width_limits) else model.scale_limits
    return ", ".join("{:g} to {:g}".format(*limits) for limits in (widths, model.scale_limits))


def behind(seen: Survey, proposal: Proposal) -> tuple[str, str]:
    """What is done about the background, and how much things then stand out."""
    kind = proposal.model.background
    if kind == "none":
        return f"subtracted ({proposal.camera.subtraction.method})", f"foreground of brightness {seen.brightness:.2f}"
    return f"{kind}, in the model", f"things differ from it by {seen.contrast:.2f}"


def by(size: tuple[int, int]) -> str:
    """Width and height as people write them."""
    return f"{size[1]}x{size[0]}"


def pixels(sides: Sizes) -> str:
    """The usual thing's."""
    return f"{sides.width[1]:.0f}x{sides.height[1]:.0f} pixels"
