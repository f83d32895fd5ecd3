"""The definitions that every number of the page links to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """One term: what it means in plain words, and the formula where there is one."""

    anchor: str
    term: str
    text: str
    formula: str | None = None

    @property
    def short(self) -> str:
        return self.text.split(". ")[0].rstrip(".") + "."


GLOSSARY = (
    Definition(
        "window",
        "Window",
        "A stretch of a text, cut in two. The model is given the first part (the prefix) and has to produce the "
        "second (the target). Windows overlap on purpose, so that no passage falls between two of them.",
    ),
    Definition(
        "probability",
        "Probability of a continuation",
        "The chance that one answer, sampled under the decoding policy of the run, is exactly this continuation. The "
        "policy keeps the allowed tokens at each step and rescales their probabilities so that they add up to 1.",
        "Pr(v | prefix) = Π over tokens t of Pr(v_t | prefix, v_<t)",
    ),
    Definition(
        "threshold",
        "Threshold τ",
        "The chance per query from which a window counts as extractable. At 0.001, about one answer in a thousand "
        "reproduces the target.",
    ),
    Definition(
        "edits",
        "Edits ε",
        "How many tokens may differ. One edit replaces, inserts or removes one token (with Hamming distance: replaces "
        "one). ε = 0 means word for word.",
    ),
    Definition(
        "greedy",
        "Greedy extraction",
        "The model always takes its most likely next token and so gives one fixed answer. A window counts when that "
        "answer is within ε edits of the target.",
    ),
    Definition(
        "verbatim",
        "Verbatim extraction",
        "The window counts when the probability of the exact target reaches τ.",
        "p_z = Pr(target | prefix) ≥ τ",
    ),
    Definition(
        "near",
        "Near-verbatim extraction",
        "The window counts when the continuations within ε edits of the target together reach τ. What is shown is a "
        "certified lower bound: continuations that were found and added up, so the true value can only be higher.",
        "p_{z,ε} = Σ Pr(v | prefix) over all v with distance(v, target) ≤ ε",
    ),
    Definition(
        "bounds",
        "Certified bounds",
        "For each ε, the lower bound adds up continuations that were found. The upper bound adds everything that was "
        "not explored and can still end within ε edits. The true mass lies between them with certainty, not merely "
        "with confidence; at ε = 0 they meet. Lower bound ≥ τ: extractable. Upper bound < τ: ruled out. Otherwise the "
        "run has shown neither.",
    ),
    Definition(
        "bracket",
        "At most",
        "How many windows can be extractable in all, those included that the search left undecided or the screen left "
        "out. What a search leaves open is sampled, and screened windows are searched at random; from both follows a "
        "limit that holds with the stated confidence for the whole count, however few samples hit.",
    ),
    Definition(
        "estimate",
        "Sampled estimate",
        "An estimate of the mass from random continuations of the unexplored paths, with a 95 % interval. It depends "
        "on chance, so it is reported beside the certified bounds and never in their place.",
    ),
    Definition(
        "interval",
        "95 % interval",
        "How far the share could be from that of other passages like these. Overlapping windows repeat each other, so "
        "whole documents or stretches of text, not windows, are taken as the independent units.",
    ),
    Definition(
        "control",
        "Target and control",
        "Target texts may have been in the training data. Control texts were not: what the model reaches there is "
        "what it reaches without having memorized anything.",
    ),
    Definition(
        "shared",
        "Shared passages",
        "A control window is shared when at least half of its suffix stands in target texts too, in runs of eight "
        "words or more, punctuation and layout aside. The model may have learned it there, so it says nothing about "
        "text that the model was not trained on.",
    ),
    Definition(
        "queries",
        "Queries needed",
        "How often one has to ask before the passage comes out at least once with the given chance. A lower bound on "
        "the mass gives the largest number needed, an upper bound the smallest.",
        "n = log(1 − chance) / log(1 − mass), rounded up",
    ),
    Definition(
        "category-verbatim",
        "Word for word",
        "The exact target alone reaches τ.",
        "p_z ≥ τ",
    ),
    Definition(
        "category-unlocked",
        "Only nearly",
        "The exact target stays below τ, and near-verbatim continuations bring the mass to τ.",
        "0 < p_z < τ ≤ p_{z,ε}",
    ),
    Definition(
        "category-zero",
        "Only nearly, exact impossible",
        "The decoding policy can never produce the exact target, and near-verbatim continuations reach τ all the same. "
        "A verbatim test would call the window safe.",
        "p_z = 0, p_{z,ε} ≥ τ",
    ),
    Definition("gain", "Mass gain Δ", "What near-verbatim continuations add to the exact one.", "Δ = p_{z,ε} − p_z"),
    Definition(
        "shell",
        "Shell share",
        "The part of a window's near-verbatim mass at exactly ε edits. The share at ε = 0 is the verbatim share.",
        "(p_{z,ε} − p_{z,ε−1}) / p_{z,budget}",
    ),
    Definition(
        "covered",
        "Text covered",
        "The share of a document's characters that lie in the target of at least one extractable window.",
    ),
    Definition(
        "continuation",
        "Continuation",
        "What the model says after the prefix, as many tokens as the target has. Struck-through characters are in the "
        "target only, marked ones in the continuation only.",
    ),
    Definition(
        "rank",
        "Token rank",
        "The place of the true next token in the model's list of candidates. 1 is its first choice.",
    ),
    Definition(
        "membership",
        "Membership scores",
        "Numbers that others take for a sign that a text was trained on: how likely its tokens are, by themselves or "
        "beside what its compressed length, the vocabulary or another model would lead one to expect. AUC is the "
        "chance that a target window scores higher than a control window; 0.5 is a coin toss.",
    ),
    Definition(
        "risk",
        "Risk of a work",
        "What somebody gets who asks n times about windows of a document taken at random, one sampled answer each: the "
        "chance that at least one answer is the passage (or within ε edits of it), and how many characters come out on "
        "average, each counted once. Windows that were not searched count by their bounds.",
        "1 − (1 − m̄)ⁿ, m̄ the mean mass of the windows",
    ),
    Definition("kind", "Kinds and tags", "Words that records carry with them, to group them by."),
    Definition("copies", "Copies", "How often the document stood in the training data, where that is known."),
    Definition(
        "screen",
        "Screen",
        "Windows whose tokens are far from likely are not searched: they keep their exact probability as lower bound "
        "and, from ε = 1 on, 1 as upper bound, and are never ruled out. A random sample of them is searched all the "
        "same to see what the screen missed.",
    ),
    Definition(
        "recovery",
        "Recovery",
        "How often the search, left to itself, comes upon the exact target in windows where its probability, which is "
        "also computed directly, reaches τ. The published bounds do not depend on it.",
        "windows with the target found / searched windows with p_z ≥ τ",
    ),
)
