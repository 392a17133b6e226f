"""Every knob and every preset (App. D and E of the paper).

Standard library only, so that ``sqair --help`` stays instant. A preset is one frozen dataclass; a command line or a
TOML file overrides fields of it by name. Where the paper is silent or the authors' program departs from it, the
field's comment says so.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

FORMAT_VERSION = 1
"""Written into every file of ours; a reader refuses a number it does not know."""


class UserError(Exception):
    """Something the user can mend; shown as one line, exit code 1."""


class UsageError(UserError):
    """A command used wrongly; shown as one line, exit code 2."""


@dataclass(frozen=True)
class ConvConfig:
    """The convolutional encoder and the subpixel decoder (App. D.2, E). All filters are 3x3 with SAME padding."""

    features: tuple[int, ...] = (16, 32, 32, 64)
    """Feature maps of the CNN that the image and glimpse encoders share."""
    strides: tuple[int, ...] = (2, 2, 1, 1)
    """Strides of its layers."""
    decoder_hidden: int = 256
    """Units of the decoder's first layer; the second gives the maps below."""
    decoder_maps: int = 32
    """Feature maps that the subpixel CNN begins with."""
    decoder_features: tuple[int, ...] = (32, 64, 64)
    """Feature maps of the subpixel CNN, counted after the shuffle."""
    decoder_strides: tuple[int, ...] = (1, 2, 2)
    """How many times each of its layers enlarges the image."""


@dataclass(frozen=True)
class VRNNConfig:
    """Sizes of VRNN (App. D.3), which has no objects; H = H' = J is the width. All filters are 3x3."""

    latent_size: int = 165
    """Length of z_t: all that three objects can have."""
    layers: int = 3
    """L, hidden layers of every fully connected network."""
    features: tuple[int, ...] = (32, 32, 32, 64, 64, 64)
    """Feature maps of the CNN that sees a frame; the transposed CNN that draws one mirrors it."""
    strides: tuple[int, ...] = (1, 2, 1, 2, 1, 2)
    """Strides of its layers."""
    decoder_maps: int = 32
    """Feature maps that the transposed CNN begins with."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes, priors and switches of SQAIR, AIR and VRNN."""

    kind: Literal["sqair", "air", "vrnn"] = "sqair"
    """SQAIR; AIR, which sees every frame by itself; or VRNN, which knows no objects."""
    image: tuple[int, int] = (50, 50)
    """Height and width of a frame in pixels."""
    channels: Literal[1, 3] = 1
    """1 for grey, 3 for colour."""
    glimpse: tuple[int, int] = (20, 20)
    """Height and width of a glimpse in pixels."""
    max_objects: int = 3
    """N, the number of slots."""
    what_size: int = 50
    """Length of what, the code of an object's look."""
    width: int = 256
    """Units of every fully connected layer and RNN."""
    networks: Literal["mlp", "conv"] = "mlp"
    """Encoders and decoder: fully connected, or convolutional as the settings conv.*, for VRNN vrnn.*, say."""
    conv: ConvConfig = field(default_factory=ConvConfig)
    """Layers of the convolutional networks."""
    vrnn: VRNNConfig = field(default_factory=VRNNConfig)
    """Sizes of VRNN; the other kinds do not use them."""
    output_std: float = 0.3
    """Standard deviation of the Gaussian likelihood."""
    learn_output_std: bool = False
    """Learn it as one number that starts there; the paper holds it fixed (App. D.2), see train.output_std_steps."""

    # --- where: scale = low + (high - low) sigmoid(z), shift = limit tanh(z); the paper does not say
    scale_limits: tuple[float, float] = (0.02, 1.0)
    """Smallest and largest size of a glimpse, as a share of the frame."""
    width_limits: tuple[float, float] = (0.0, 0.0)
    """The same for its width, where that differs: people are never as wide as high. 0 0 for no difference."""
    shift_limit: float = 1.5
    """How far a centre may lie from the middle: 1 is the edge (the authors' program), more lets it leave the frame."""
    where_prior_mean: tuple[float, float, float, float] = (-0.5, -0.5, 0.0, 0.0)
    """Mean of p^D(where), in logits: scale x, scale y, shift x, shift y."""
    where_prior_std: tuple[float, float, float, float] = (0.5, 0.5, 0.5, 0.5)
    """Its standard deviations."""

    # --- switches: places where the authors' program departs from the paper, or the paper is silent
    where_prior: Literal["fixed", "learned", "autoregressive"] = "learned"
    """p^D(where): a fixed Gaussian (App. B), one with learned mean and std, or each object given the one before it."""
    presence_after_what: bool = False
    """Discovery: q(pres) given h^D and what (caption of fig. 3, the authors' program), or h^D alone (Algorithm 3)."""
    glimpse_mask: bool = False
    """Propagation: multiply glimpses by a soft mask made from the temporal state (the authors' program)."""
    what_update: Literal["residual", "absolute", "gated"] = "residual"
    """Propagation, mean of q(what): change of the old what, a new one (paper), or the authors' gated mixture."""
    where_covariance: Literal["diagonal", "full"] = "diagonal"
    """Propagation, q(where): factorised (paper), or correlated by a learned triangular matrix (authors' program)."""
    prior_update: Literal["residual", "absolute"] = "residual"
    """p^P: Gaussians around the old what and where, or anywhere (the authors' program); the paper is silent."""
    proposal: Literal["glimpse", "none", "image", "low-resolution", "projection"] = "glimpse"
    """Propagation, what is seen before where: a proposed place (paper), nothing, or all of the frame (App. A)."""
    relation: Literal["rnn", "none"] = "rnn"
    """Propagation: an RNN over objects tells each of those before it (paper), or each sees itself alone."""
    mean_image: bool = False
    """Add a learned image under present glimpses (the authors' program)."""
    glimpse_output: Literal["sigmoid", "scaled"] = "sigmoid"
    """Decoder output: sigmoid(x - 2), or x times a learned scale that starts at 0.25 (the authors' program)."""

    # --- initial biases: they decide which behaviour training starts from
    discovery_bias: float = 1.0
    """Initial logit of q^D(pres)."""
    propagation_bias: float = 4.0
    """Initial logit of q^P(pres); the authors' program: 5."""
    survival_bias: float = 5.0
    """Initial logit of p^P(pres); the authors' program: 10."""
    nothing_new_bias: float = 10.0
    """Initial extra logit of p^D(D_t = 0) for t > 1, as in the authors' program."""
    discovery_where_std_bias: float = -2.0
    """Initial pre-softplus std of where in discovery; the authors' program: -3."""
    propagation_where_std_bias: float = -2.0
    """Initial pre-softplus std of where in propagation; the authors' program: -4."""
    propagation_what_std_bias: float = -1.0
    """Initial pre-softplus std of what in propagation; the authors' program: 0."""
    prior_std_bias: float = -1.0
    """Initial pre-softplus std of both Gaussians of p^P; the authors' program: 0."""
    min_std: float = 0.01
    """Added to every learned standard deviation."""

    # --- a static background, which the paper has not: it subtracts (App. E); see background.py
    background: Literal["none", "running", "learned"] = "none"
    """What is behind objects: black, a slow average of the frames, or a learned picture in a light that drifts."""
    background_rate: float = 0.02
    """Share of the newest frame in a running background."""
    background_size: tuple[int, int] = (0, 0)
    """Height and width of a learned background, of which frames are windows; 0 0 for those of a frame."""

    @property
    def seen_channels(self) -> int:
        """Channels that q sees: those of a frame and, with a background, of its difference from that."""
        return self.channels if self.background == "none" else 2 * self.channels

    @property
    def drawn_channels(self) -> int:
        """Channels that the decoder gives: those of a frame and, with a background, a mask."""
        return self.channels if self.background == "none" else self.channels + 1


@dataclass(frozen=True)
class DataConfig:
    """Where sequences come from."""

    name: str = "moving-mnist"
    """moving-mnist, moving-mnist-free, moving-mnist-in-out, or a .npz file of sequences."""
    digits: str = "mnist"
    """mnist, strokes, or a folder with the four MNIST idx files."""
    length: int = 10
    """T, frames in a sequence."""
    size: tuple[int, int] = (50, 50)
    """Height and width of a frame in pixels."""
    sequences: int = 0
    """Of a file, train on the first so many only; 0 for all. What is held out for validation stays the same."""
    max_digits: int = 2
    """The number of digits is uniform over 0 to this."""
    digit_scale: float = 1.0
    """Size of a digit; 0.7 makes it 30% smaller. The discovery cost, and limits of boxes or first_scale, follow it."""
    first_scale: float = 0.0
    """Size of a digit while training begins, see train.first_scale_steps; 0 for digit_scale."""
    speed: float = 10.0
    """Largest speed in pixels per frame and axis."""


@dataclass(frozen=True)
class TrainConfig:
    """Optimiser, objective, curriculum (App. D.1) and what our recipe adds."""

    steps: int = 20_000
    """Steps of the optimiser."""
    batch: int = 32
    """Sequences per step."""
    particles: int = 5
    """K of the IWAE bound."""
    bound: Literal["elbo", "iwae", "fivo"] = "iwae"
    """The objective; see objective.py for the estimators that go with it."""
    estimator: Literal["vimco", "vimco-authors", "nvil", "reinforce"] = "vimco"
    """Gradient estimator for presence; see objective.py."""
    normalise_nvil: bool = True
    """NVIL: divide the learning signal by its running deviation, as its authors do; this biases the gradient."""
    optimiser: Literal["adam", "muon", "rmsprop"] = "adam"
    """Adam; Muon, which makes the steps of matrices orthogonal; or RMSprop as TensorFlow has it (paper)."""
    learning_rate: float = 6e-4
    """Its largest value."""
    warm_up: int = 500
    """Steps over which the learning rate rises from 0."""
    decay: tuple[int, ...] = ()
    """Steps at which the learning rate is divided by three (paper: 400k and 1M)."""
    final_decay: float = 0.25
    """Last part of training in which the learning rate falls to 0 along a cosine; 0 for never."""
    clip: float = 10.0
    """Largest gradient norm; 0 for no clipping."""
    clip_frame: float = 100.0
    """Largest norm of the gradient that a particle passes from a frame to the one before it; 0 for no clipping."""
    precision: Literal["float32", "tf32", "bf16"] = "tf32"
    """Factors of matrix products while training on a GPU: exact, or rounded to 10 or 7 bits (bf16 also keeps what the
    gradient needs in 16 bits), with exact sums."""
    first_length: int = 3
    """Curriculum: frames at the start."""
    stage: int = 700
    """Curriculum: steps until one more frame is added."""
    first_scale_steps: int = 0
    """First steps, in which digits have data.first_scale; a third of all where SQAIR is to learn much smaller ones."""
    discovery_dropout: float = 0.9
    """Training only: probability that a frame t > 1 is without discovery, for the whole batch."""
    discovery_cost: float = 20.0
    """Training only: nats per object discovered in any frame, a reward if negative, annealed to 0 ..."""
    discovery_cost_steps: int = 4_000
    """... over so many steps."""
    output_std_steps: int = 0
    """Steps for which a learned output std is held at its start (the authors: 10,000)."""
    rediscovery_cost: float = 0.0
    """Training only, lasting: nats per object discovered at t > 1."""
    presence_delay: int = 0
    """Training only: first steps in which no presence in q is learned: a slot is not given up before it is any use."""
    presence_cost: float = 0.0
    """Training only, lasting: nats per object and frame; what it does not explain, an object must not stay for."""
    surplus_cost: float = 0.0
    """Training only, lasting: nats per frame and object above `most_objects`, where the data have that."""
    start: str = ""
    """A model's name or folder whose weights training begins with; it must have the same settings model.*."""
    anew: tuple[str, ...] = ()
    """Parts of that model that begin with random weights all the same, such as propagation.pres_head."""
    seed: int = 0
    """The same seed gives the same run."""
    evaluate_every: int = 1_000
    """Steps between validations and checkpoints."""
    validation_sequences: int = 256
    """Held-out sequences of a validation."""
    keep: int = 2
    """Checkpoints kept besides the best."""
    members: int = 1
    """Models trained side by side, with the seeds seed, seed + 1, ..."""
    sweep: tuple[str, ...] = ()
    """Settings trained side by side, each as FIELD=V1,V2,...: their product, times the members."""
    patience: int = 0
    """Evaluations without a new best after which training stops early; 0 for never."""
    restart_collapsed: bool = False
    """Replace a member that the alarm finds collapsed: early afresh, later by a copy of the best healthy one."""
    spike: float = 100.0
    """Skip a step whose gradient norm is more than so many times its running mean; 0 for never."""


@dataclass(frozen=True)
class Preset:
    """A model, the data it is meant for and how it is trained."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


VRNN_TRAINING = TrainConfig(
    bound="fivo", learning_rate=5e-4, first_length=10, discovery_dropout=0.0, discovery_cost=0.0
)
"""Ours for VRNN: FIVO on whole sequences; there is no discovery to restrain."""

COMING_AND_GOING = TrainConfig(discovery_cost=80.0, discovery_cost_steps=25_000, discovery_dropout=0.4)
"""Ours where objects appear at any time: they are looked for more often, and what explains nothing costs for long."""

AUTHORS_SWITCHES: dict[str, Any] = {
    "shift_limit": 1.0,
    "where_prior": "autoregressive",
    "where_prior_mean": (-2.0, -2.0, 0.0, 0.0),
    "where_prior_std": (1.32, 1.32, 1.32, 1.32),
    "presence_after_what": True,
    "glimpse_mask": True,
    "what_update": "gated",
    "where_covariance": "full",
    "prior_update": "absolute",
    "mean_image": True,
    "glimpse_output": "scaled",
    "discovery_bias": 1.0,
    "propagation_bias": 5.0,
    "survival_bias": 10.0,
    "nothing_new_bias": 10.0,
    "discovery_where_std_bias": -3.0,
    "propagation_where_std_bias": -4.0,
    "propagation_what_std_bias": 0.0,
    "prior_std_bias": 0.0,
}
"""Fields of ModelConfig as the authors' program sets them, for ``dataclasses.replace``."""

PAPER_SWITCHES: dict[str, Any] = {"where_prior": "fixed", "what_update": "absolute"}
"""Fields of ModelConfig that the paper states and our defaults leave, for ``dataclasses.replace``."""

PRESETS: dict[str, Preset] = {
    "sqair-mlp": Preset(),
    "sqair-conv": Preset(model=ModelConfig(networks="conv", width=128), train=TrainConfig(learning_rate=5e-4)),
    "air-mlp": Preset(
        model=ModelConfig(kind="air"), train=TrainConfig(learning_rate=5e-4, first_length=10, discovery_dropout=0.0)
    ),
    "vrnn-mlp-small": Preset(ModelConfig(kind="vrnn", width=128, vrnn=VRNNConfig(layers=2)), train=VRNN_TRAINING),
    "vrnn-mlp": Preset(ModelConfig(kind="vrnn", width=256), train=VRNN_TRAINING),
    "vrnn-mlp-large": Preset(ModelConfig(kind="vrnn", width=512, vrnn=VRNNConfig(layers=4)), train=VRNN_TRAINING),
    "vrnn-conv-small": Preset(
        ModelConfig(
            kind="vrnn",
            networks="conv",
            width=128,
            vrnn=VRNNConfig(layers=1, features=(32, 32, 64, 64), strides=(2, 2, 2, 2)),
        ),
        train=VRNN_TRAINING,
    ),
    "vrnn-conv": Preset(
        ModelConfig(kind="vrnn", networks="conv", width=256, vrnn=VRNNConfig(layers=1)), train=VRNN_TRAINING
    ),
    "vrnn-conv-large": Preset(
        ModelConfig(
            kind="vrnn",
            networks="conv",
            width=512,
            vrnn=VRNNConfig(
                layers=1, features=(32, 32, 32, 64, 64, 64, 64, 64, 64), strides=(1, 2, 1, 2, 1, 2, 1, 1, 1)
            ),
        ),
        train=VRNN_TRAINING,
    ),
    "sqair-pedestrians": Preset(
        model=ModelConfig(
            image=(64, 64),
            glimpse=(28, 12),
            networks="conv",
            width=128,
            conv=ConvConfig(
                features=(16, 32, 64, 64),
                decoder_hidden=128,
                decoder_maps=64,
                decoder_features=(64, 64),
                decoder_strides=(2, 2),
            ),
            scale_limits=(0.1, 0.9),
            width_limits=(0.04, 0.4),
            where_prior_mean=(-0.35, -0.3, 0.0, 0.0),  # a glimpse at its own size: 12 pixels wide, 28 high
        ),
        data=DataConfig(length=5, size=(64, 64)),
        train=replace(COMING_AND_GOING, learning_rate=3e-4, stage=2_000, patience=10),
    ),
    "tiny": Preset(
        model=ModelConfig(image=(32, 32), glimpse=(12, 12), max_objects=2, what_size=16, width=64),
        data=DataConfig(digits="strokes", size=(32, 32), length=6, max_digits=2, digit_scale=0.5, speed=4.0),
        train=TrainConfig(
            steps=4_500,
            batch=16,
            learning_rate=8e-4,
            stage=450,
            discovery_cost=50.0,
            discovery_cost_steps=6_000,
            evaluate_every=375,
            validation_sequences=128,
        ),
    ),
}


def preset(name: str) -> Preset:
    """The preset called `name`; an unknown one is refused with the nearest that exists."""
    if name in PRESETS:
        return PRESETS[name]
    raise UserError(f"unknown preset {name!r}; {nearest(name, PRESETS)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """'did you mean ...?' or the list of what exists."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(sorted(known))
