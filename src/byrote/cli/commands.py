"""Every command: its options, its help, and what is refused before libraries that take seconds are imported.

The function of the same name in the module that a command names does the work; it is imported when the command runs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from byrote.cli.from_options import command
from byrote.corpus.read import find_files
from byrote.errors import ConfigError
from byrote.longform.matching import MergePass
from byrote.longform.options import PROFILES, AuditCommand, AuditOptions
from byrote.models.hf.files import local_folder
from byrote.options import Settled, like, option, required, settle
from byrote.prior.options import PriorConfig
from byrote.run_kinds import by_kind
from byrote.scan.options import McOptions, RunConfig, runs_of
from byrote.types import ExportFormat, ExportTable, LoggerName


def require_inputs(model: str, *texts: str) -> None:
    """Refuse texts and model folders that are not there or are no plain files. Reads no text and no weights."""
    find_files(texts)
    local_folder(model)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions(Settled):
    out: Path = option(Path("demo"), "Folder for the model, the texts, the run and the report.")
    stride_chars: int = like(RunConfig, "stride_chars", default=120)


@command(DemoOptions, module="lab")
def demo(options: DemoOptions) -> None:
    """Train a pocket model, scan what it memorized, and write a report. Takes about three minutes on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Settled):
    """How a run folder is opened."""

    fresh: bool = option(False, "Start over instead of resuming.", names="--fresh/--resume", is_common=True)


@command(
    RunConfig, Session, module="scan", needs={"model": "required", "text": "required, or --pairs", "out": "required"}
)
def scan(config: RunConfig, session: Session) -> None:
    """Measure how much of the texts the model can reproduce, and write a run folder.

    Run the same command again to resume an interrupted run. Every option can also stand in a YAML file (--config).
    """
    config.require_places()
    for one in runs_of(config):
        require_inputs(*one.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions(Settled):
    out: Path = required("Run folder to write.", positional=True)
    shards: tuple[Path, ...] = required(
        "Folders of all shards of one scan (byrote scan --shard 0/3 …), in any order.", positional=True
    )


@command(MergeOptions, module="scan")
def merge(options: MergeOptions) -> None:
    """Make one run of the shards of a scan: the same rows and the same audit as of a scan that was never divided."""


@command(McOptions, Session, module="sampling")
def mc(given: McOptions, session: Session) -> None:
    """Estimate the near-verbatim mass of a few windows by plain sampling, with an interval.

    The windows, the model and every option are those of a scan; other weights are refused.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(Settled):
    mass: tuple[float, ...] = option(
        (0.1, 0.01, 0.001),
        "Probability to plan for; may be repeated.",
        group="estimates",
        is_common=True,
        above=0,
        at_most=1,
    )
    samples: tuple[int, ...] = option(
        (3_000, 100_000),
        "Monte Carlo samples to price; may be repeated.",
        group="estimates",
        is_common=True,
        at_least=1,
    )
    devices: int = option(1, "Devices that share the windows of the scan.", group="machine", is_common=True, at_least=1)
    pilot: int = option(
        300, "Windows that are measured and timed here, where --model and --text are given.", group="machine",
        is_common=True, at_least=1,
    )  # fmt: skip
    endpoint: bool = option(
        False, "Also what a served model costs: requests and tokens.", group="endpoint", is_common=True
    )


@command(RunConfig, PlanOptions, module="plan")
def plan(config: RunConfig, options: PlanOptions) -> None:
    """Sample sizes, queries and token evaluations for a measurement. With the options of a scan (--model, --text, …)
    also its time: a random sample of its windows is measured on this device and scaled up."""
    require_inputs(*config.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions(Settled):
    runs: tuple[Path, ...] = required(
        "Run folders of any kind, finished or not; several of one kind are also compared.", positional=True
    )
    queries: tuple[float, ...] = option((), "Of a scan: rates within this many queries; may be repeated.", at_least=1)
    probability: tuple[float, ...] = option((0.5, 0.9), "Probability for --queries; may be repeated.", above=0, below=1)
    threshold: str | None = option(
        None, "Read scans at another τ: a number, or from-control=0.001 for a rate of false positives."
    )
    epsilon: int | None = option(
        None, "Read scans at a smaller ε than they were searched with; a scan with it may certify more.",
        at_least=0, default_words="edit_budget of the run",
    )  # fmt: skip
    reveal: bool = option(False, "Print names, numbers and addresses that are otherwise masked.")
    json: bool = option(False, "Print it as JSON, one entry a run.", names="--json")


@command(ShowOptions, module="runs")
def show(options: ShowOptions) -> None:
    """Show what runs found: rates with intervals, controls beside targets, and the text as a heat strip."""
    if options.threshold is not None and len(options.runs) > 1:
        raise ConfigError(
            f"threshold is {options.threshold}, but {len(options.runs)} runs were given; show one at a time."
        )
    by_kind(options.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(Settled):
    runs: tuple[Path, ...] = required(
        "Run folders of any kind; several of one kind are compared, several kinds share a page.", positional=True
    )
    out: Path | None = option(None, "Where to write the report.", default_words="RUN/report when there is one run")
    threshold: str | None = like(ShowOptions, "threshold")
    reveal: bool = like(ShowOptions, "reveal")


@command(ReportOptions, module="runs")
def report(options: ReportOptions) -> None:
    """Write a self-contained page of one run or several, with its figures (SVG, PNG, PDF) and tables (CSV)."""
    if options.out is None and len(options.runs) > 1:
        raise ConfigError(
            f"{len(options.runs)} runs were given, so their report belongs to none of them; say where with --out."
        )
    by_kind(options.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(Settled):
    run: Path = required("A run folder, finished or not.", positional=True)
    format: ExportFormat | None = option(
        None, "csv has a column for every ε; jsonl an object a line; lm-eval is a folder with a task of its windows; "
        "hub has the rates as evaluation results of the Hugging Face hub.", default_words="csv",
    )  # fmt: skip
    to: LoggerName | None = option(
        None, "Log the rates of a scan, and no text, to this logger as it is set up here.", default_words="none"
    )
    project: str = option("byrote", "Project or experiment of --to.")
    dataset: str | None = option(
        None, "Of hub: the benchmark dataset of the hub that the results belong to, as org/name or org/name@revision."
    )
    out: Path | None = option(None, "File to write; of lm-eval a folder.", default_words="beside the run's tables")
    table: ExportTable = option("results", "Which table.")
    texts: bool = option(True, "In CSV, add the passage of every window of a text; passages of records are left out.")
    inert: bool = option(True, "In CSV, put an apostrophe before texts that a spreadsheet would take for a formula.")


@command(ExportOptions, module="runs")
def export(options: ExportOptions) -> None:
    """Write a run's rows as CSV or JSON Lines, every digit kept; its windows as a task; its rates for hub or logger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions(Settled):
    run: Path = required("A finished scan.", positional=True)
    max_rate: tuple[str, ...] = option(
        (), "A number and the most it may be: certified=0.01, near, mass, or 'kind:phone verbatim=0'; may be repeated."
    )
    baseline: Path | None = option(None, "A scan of the same windows to compare with.")
    max_increase: tuple[str, ...] = option(
        (), "By how much a rate may exceed the baseline's: 0.02 means near=0.02; may be repeated."
    )
    confidence: float = option(
        0.95, "Chance that all that passes is within its limit and all that fails beyond.", above=0, below=1
    )
    json: Path | None = option(None, "Also write what was judged as JSON.")
    junit: Path | None = option(None, "Also write it as JUnit XML.")
    summary: Path | None = option(None, "Also append it to this file as Markdown, such as $GITHUB_STEP_SUMMARY.")


@command(GateOptions, module="runs")
def gate(options: GateOptions) -> None:
    """Exit with 0 when every number is within its limit, 1 when one is beyond, 3 when that cannot be told; 2 is an
    error.

    Numbers are judged by what they are at least and at most: certified from below, at the stated confidence from above.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions(Settled):
    before: Path = required("A finished scan.", positional=True)
    after: Path = required("A scan of the same windows with another model.", positional=True)
    later: tuple[Path, ...] = option(
        (), "A scan of what was made of the second model later, quantised or trained on: what comes back; may be "
        "repeated.",
    )  # fmt: skip
    control: Path | None = option(None, "A scan with a model that was never trained on the texts, to compare with.")
    out: Path | None = option(None, "Also write a page with figures and tables to this folder.")
    json: bool = option(False, "Print it as JSON.", names="--json")


@command(ChangeOptions, module="runs")
def change(options: ChangeOptions) -> None:
    """Show what changed between two scans of the same windows: what is kept, forgotten, new, and what comes back.

    Before and after unlearning, fine-tuning or quantisation, say.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskOptions(Settled):
    run: Path = required("A run folder, finished or not.", positional=True)
    queries: tuple[float, ...] = option(
        (1.0, 100.0, 10_000.0, 1_000_000.0), "How many queries; may be repeated.", at_least=1
    )
    document: str | None = option(None, "Only this document.")


@command(RiskOptions, module="runs")
def risk(options: RiskOptions) -> None:
    """Show the risk of whole documents: the chance that n random queries bring out a passage, and how much of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions(Settled):
    folder: Path = option(Path("."), "Where to look, folders inside of it included.", positional=True)


@command(RunsOptions, module="runs")
def runs(options: RunsOptions) -> None:
    """List the runs in a folder and below: kind, model, text, date, state and rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(Settled):
    run: Path = required("A run folder of any kind, finished or not.", positional=True)


@command(VerifyOptions, module="runs")
def verify(options: VerifyOptions) -> None:
    """Check every file of a run, its report and its exports against the hashes they were written with; the first that
    does not fit is named, and so is what has no hash."""


@command(AuditCommand, AuditOptions, profiles=PROFILES, module="longform")
def audit(command: AuditCommand, options: AuditOptions) -> None:
    """Measure how much of a book a model reproduces when it is asked to go on and on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallOptions(Settled):
    book: Path = required("The reference text.", group="text")
    generation: Path = required("The text that may contain it.", group="text")
    passes: tuple[MergePass, ...] = like(AuditOptions, "passes")
    repeated_passes: int = option(
        4, "Further passes that look for moved and duplicated passages.", group="audit", at_least=0
    )
    out: Path | None = option(None, "Folder of the run: both texts, every block, the numbers, and a page.")
    html: Path | None = option(None, "Write both texts side by side as a page.")
    json: Path | None = option(None, "Write every number and block as JSON.")


@command(RecallOptions, Session, module="longform")
def recall(options: RecallOptions, session: Session) -> None:
    """Measure how much of a book stands near-verbatim in a generated text (nv-recall)."""
    require_inputs("", str(options.book), str(options.generation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(Settled):
    """What the terminal shows."""

    reveal: bool = like(ShowOptions, "reveal", is_common=True)


@command(PriorConfig, Session, Shown, module="sampling")
def prior(config: PriorConfig, session: Session, shown: Shown) -> None:
    """Tell memorized suffixes from merely likely ones: P(s|p) against the probability after other prefixes."""
    require_inputs(*config.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCommand(Settled):
    file: Path = required(
        "YAML file of the study, or the name of a recipe (byrote recipes lists them).", group="text", positional=True
    )
    out: Path | None = option(
        None, "Folder of the study; an unfinished one is resumed.", default_words="out of the file"
    )
    model: tuple[str, ...] = option(
        (), "Models in the place of the file's, in its order; numbers published about those are compared with them.",
        group="text", commas=True, default_words="those of the file",
    )  # fmt: skip
    text: tuple[str, ...] = option(
        (), "Texts (or pairs) in the place of the file's, likewise.", group="text", default_words="those of the file"
    )
    control: tuple[str, ...] = option(
        (), "Control texts in the place of the file's.", group="text", default_words="those of the file"
    )
    change: tuple[str, ...] = option(
        (), "Give another option of the file a value, NAME=VALUE; with commas several where it is an axis.",
        group="text", names="--set",
    )  # fmt: skip
    sample: int | None = like(RunConfig, "sample", default_words="as in the file")
    fresh: bool = like(Session, "fresh")
    smoke: bool = option(
        False, "Try the file on a model that is trained on the spot: two values an axis, ten windows.", group="text",
        names="--smoke",
    )  # fmt: skip


@command(StudyCommand, module="study")
def study(given: StudyCommand) -> None:
    """Scan a grid of models, texts, lengths, beam widths and policies, and lay the results over each other.

    Every option of byrote scan may stand in the file; one with a list of values is an axis of the grid. With
    `measurement: prior` or `audit` cells are such runs, with their options. Run the same command again to go on with an
    interrupted study.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipesOptions(Settled):
    name: str | None = option(None, "Print the file of this recipe.", positional=True)


@command(RecipesOptions, module="study")
def recipes(options: RecipesOptions) -> None:
    """List published experiments that `byrote study NAME` runs, or print the file of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterfactualOptions(Settled):
    out: Path = required("Folder of the run; resumed if unfinished.")
    preset: Literal["quick", "full", "test"] = option(
        "quick", "Minutes on two cores (quick), hours (full), or seconds (test).", group="text"
    )
    text: tuple[str, ...] = option(
        (),
        "Real texts with names: all models are trained on these together, each without half of the passages that lead "
        "to a name. Otherwise invented texts with copies and near-duplicates.",
        group="text",
        is_path=True,
    )
    models: int | None = option(
        None, "With --text: how many models.", group="text", at_least=2, default_words="16; 100 (full), 4 (test)"
    )
    device: Literal["cpu", "cuda"] = option("cpu", "With --text: cpu or cuda.", group="machine")
    processes: int | None = option(
        None, "Without --text: models trained at once.", group="machine", at_least=1, default_words="one per core"
    )

    def __post_init__(self) -> None:
        settle(self)
        if not self.text and (self.models is not None or self.device != "cpu"):
            raise ConfigError("--models and --device are for models that are trained together on --text; give texts.")
        if self.text and self.processes is not None:
            raise ConfigError("--processes is for invented texts; models of --text are trained together in one.")


@command(CounterfactualOptions, Session, module="lab")
def counterfactual(options: CounterfactualOptions, session: Session) -> None:
    """Does the cheap ratio agree with counterfactual memorization? Trains models with and without target sequences."""
    require_inputs("", *options.text)


COMMANDS = (
    demo, scan, merge, report, show, change, gate, risk, runs, export, plan, recall, audit, prior, mc, study, recipes,
    verify,
)  # fmt: skip
"""In the order of `byrote --help`; `counterfactual` is a command of `byrote lab`."""
