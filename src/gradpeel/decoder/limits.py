"""How exact is exact: every number that the decoder's judgement rests on, with its meaning.

None of them is an absolute tolerance. The decoder keeps, for every neuron and every sample, an
estimate of its error that starts at the rounding of the update's dtype and grows with each
subtraction; what follows says how that estimate is used, and how much evidence is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """The limits, by the part of the decoder that they belong to."""

    # What several parts share.
    rounding: float = 8.0
    """Roundings behind one entry of an update, in units of its dtype's resolution."""
    slack: float = 32.0
    """How many times its tracked error a quantity may be off before it counts as really
    different."""
    nothing: float = 8.0
    """How many times its error a residual may be away from zero, or a sample from another reading
    of it, while the difference still counts as zero."""
    clear: float = 50.0
    """How far a neuron's residual must exceed its error before its candidate is examined."""
    exact: float = 0.01
    """Largest relative error of a sample that may still be certified."""
    loosest: float = 0.02
    """Largest relative mismatch of any equation, however large the tracked error."""
    loosest_of_row: float = 0.25
    """The same where a row shows what the sample is, so that the equations need only tell one
    sample from several."""
    chance: float = 1e-09
    """Evidence is enough if its equations, counted as far as they are independent, jointly hold to
    this relative precision. It is a score, not a probability."""
    same: float = 1e-05
    """Two samples closer than this, or than half the digits of the update, relative to the typical
    size of an entry, count as one."""
    kink: float = 3.0
    """How many times its error a pre-activation may be below or above zero and still be
    uncertain."""
    detour: float = 1.0
    """How far beyond its two ends a pre-activation may have been during several steps, relative to
    the distance between them."""
    refinable: float = 2e6
    """Largest number of samples times neurons of an exact update at which samples are refined."""
    worn: float = 6e-06
    """Error of a sample from which on the cascade does not continue without refining."""
    merge: float = 4.0
    """How many times their errors two candidates may be apart and still be one sample."""
    speculative: float = 0.01
    """Largest chance of a candidate that may be subtracted on trial, to be confirmed later."""
    confirms: float = 0.001
    """Factor on a sample's chance for each surplus neuron that it helps to explain."""
    stands_out: float = 30.0
    """How far a sample's contribution to a neuron must exceed the errors there to be evidence for
    the sample."""
    worn_measured: float = 1e-10
    """The same where sensitivities are not computed but measured, and lose digits faster."""
    most_trace: float = 0.003
    """Largest part of another sample that may remain in one that the structure certifies."""
    apart: float = 0.04
    """Largest radius of a group that counts as one sample, relative to the distance between two."""
    copies: float = 0.01
    """Largest radius of a group, relative to the typical size of a sample, that counts as
    copies."""
    holds: float = 3.0
    """A fit may move a sample by this many times its estimated error."""
    stated: float = 5.0
    """How many times its estimate a sample's error is stated to be, so that it holds."""

    # The cascade.
    compare_coordinates: int = 16
    """Coordinates along which candidates are compared first; a few are enough."""

    # The weight of one sample.
    parallel: float = 0.01
    """Largest relative distance of a gradient from the direction of its label."""
    anchor: float = 0.0125
    """Largest radius of a group that may still determine the weight of one sample."""
    voters: int = 64
    """Number of voters that agree which are tested for being groups."""
    copies_of_unit: int = 64
    """Most samples have no more copies than this, if some have none."""
    most_copies: int = 10000
    """No sample has more copies than this if others have none, and no neuron fires for more."""
    asked_if_faint: int = 8
    """Number of voters that show how large the gradient of a sample can be."""
    whole_weight: float = 0.001
    """How far from a whole number of copies a weight may be, relative."""
    clusters: int = 8
    """Number of shares, those with the most voters, that are examined."""
    clear_voter: float = 4.0
    """How many times the least error that of a voter may be whose agreement counts."""
    agreement_chance: float = 0.0001
    """Largest expected number of agreements of voters that have nothing in common."""
    largest_batch: int = 10000000
    """No batch is larger than this."""

    # Groups.
    bend_step: float = 0.1
    """Distance at which the curvature is measured, relative to the size of a sample."""
    compared: int = 64
    """Candidates that show the distance between samples."""
    other_lines: float = 3.0
    """How much farther members may be apart on another line than on those that were tried, unless
    the structure of the update confirms that they are one."""
    many_groups: int = 8
    """From this number of different groups on their mean does not depend on the line of any of
    them."""
    distinct: float = 0.2
    """Candidates farther apart than this, relative to the distance between two samples, are not
    readings of the same ones."""
    fewest_firing: int = 8
    """A candidate must fire this many neurons before they show how far members are apart."""
    least_bend: float = 1e-10
    """A curvature below this in a simulation is its own rounding error."""
    fewest_agreeing: int = 3
    """This many groups must weigh the same before that is evidence."""
    fewest_pooled: int = 8
    """This many groups are needed before their scatter shows how exactly their mean is known."""
    pooled_slack: float = 5.0
    """How many times its error such a mean may be off."""
    hinges: int = 8
    """Number of hinges on a random line that excludes that none of them lies between two
    members."""

    # Structure.
    rank_noise: float = 1.1
    """Largest singular value of noise, in units of the value from random matrix theory."""
    rank_cliff: float = 100.0
    """A drop between singular values this deep is the edge between samples and noise."""
    outside: float = 0.01
    """Distance from the space, relative to a random vector's, beyond which nothing is evidence."""
    outside_errors: float = 16.0
    """How many times its tracked error a sample's distance from the space may be."""
    exact_grain: float = 1e-09
    """Relative error up to which an update is exact. Beyond it, samples may have merged after
    several steps, and refining many of them pays."""
    alien_bias: float = 0.1
    """Distance from the space at which the bias gradient is that of something else."""
    gram_shift: float = 256.0
    """Rounding errors by which a matrix whose smallest eigenvalue is zero is kept positive."""
    fewest_equations: float = 8.0
    """Number of equations needed to decide whether sensitivities lie in the space."""
    most_equations: int = 60
    """Largest number of equations that count: they are not all independent."""

    # Parallel loss gradients.
    parallel_rows: float = 1e-4
    """Rows that differ from multiples of each other by no more than this are parallel."""

    # Samples that fire alike.
    same_reading: float = 0.0001
    """Readings this near to each other are of one sample, however exact they are."""

    # The row cascade.
    row_most_rank: float = 0.5
    """Unknown samples, relative to the neurons that carry anything, up to which their rows can
    stand out: about half of the neurons are silent."""
    row_widest_next: float = 0.3
    """Width of the next layer, relative to the neurons that carry anything, up to which it says
    what a row looks like where it is not zero."""
    row_batch: int = 128
    """Seeds that are searched from at once."""
    row_seeds: int = 64
    """Seeds that are tried at most, for each unknown sample."""
    row_patience: int = 6
    """Batches of seeds without a new row after which the search gives up."""
    row_patience_at_first: int = 2
    """The same before any row was found."""
    row_steps: int = 100
    """Reflections from a seed before it is looked where they have led."""
    row_turns: int = 4
    """How often that is done."""
    row_end_steps: int = 5
    """Projections after them."""
    row_fit_steps: int = 5
    """Conjugate gradients for the direction at the next layer, in every reflection."""
    row_start_steps: int = 30
    """Projections that make a start where nothing is known of the next layer."""
    row_gap: float = 0.05
    """Largest relative distance between the two sets at the end of a search that led somewhere."""
    row_gap_near: float = 0.3
    """The same, where rows are only nearly what the next layer sends back."""
    row_least_change: float = 0.01
    """Least part of a change of the next layer that is a direction of its own."""
    row_few_missing: int = 16
    """So few rows that are missing are looked for in what the others leave of the space first."""
    row_remainder_seeds: int = 16
    """Neurons, and random mixtures, that a search for the last rows starts from at once."""
    row_remainder_mixtures: int = 2
    """Mixtures that are made one after the other in that search."""
    row_remainder_turns: int = 10
    """How often silent neurons that were guessed wrong are weighted down, for each of them."""
    row_remainder_steps: int = 3
    """Inverse iterations in each turn."""
    row_polish_steps: int = 12
    """How often neurons that are not silent are left out."""
    row_left_out: float = 0.03
    """Share of the neurons taken for silent of which one more may be left out in each turn."""
    row_outlier: float = 8.0
    """How many times the median of silent neurons one of them may be, in units of its error."""
    row_zero: float = 16.0
    """How many times what noise leaves of a row it may be where its sample is silent."""
    row_sent_back: float = 64.0
    """The same for what a fit of the next layer leaves, when nothing else was found: the fit costs
    digits, but differences of alike rows come as near."""
    row_spare: int = 8
    """Silent neurons beyond the rank that a row must have."""
    row_error: float = 0.003
    """Largest relative error of a row, where nothing is known of the next layer."""
    row_error_fitted: float = 0.1
    """The same where the next layer says what a row looks like: who is that faint cannot be
    certified, but need not be in the way of others."""
    row_same_guess: float = 1e-04
    """Guesses whose cosine is nearer to 1 than this are of the same row."""
    row_same: float = 1e-09
    """The same for rows, unless their errors are larger."""
    row_same_at_most: float = 0.1
    """The same for rows, however large their errors are."""
    row_settle_steps: int = 5
    """How often rows are taken from the samples that they gave, after several local steps."""
    row_settle_searches: int = 4
    """How often the search goes on after rows were dropped for that."""
    row_quotients: int = 100
    """So many neurons in a row that lead to none, and the others are not looked at, after several
    local steps."""
    row_dependent: float = 1e-09
    """What others leave of a row, relative, if it is a sum of them."""
    row_left: float = 0.001
    """Most of an update, relative, that samples without a row may make up."""
    row_measured: float = 2.0
    """How many times what a solution leaves at the neurons their errors may be."""
    row_neurons: int = 4
    """Neurons at which a sample is read once all others are taken out."""

    # The certificate.
    least_part: float = 0.001
    """Sensitivities below this part of the typical one are none."""
    firing_share: float = 0.995
    """Share of the neurons that fire at which sensitivities must be found."""
    label_misfit: float = 0.5
    """Largest part of a row of several steps that the gradient of its label may leave unexplained:
    the last layer changes meanwhile."""
    label_apart: float = 0.2
    """Largest negative entry besides that of the label, and largest sum of all entries, relative to
    it."""
    hidden_firing: float = 0.01
    """Largest share of the neurons that are silent at both ends of several local steps at which a
    sample that a neuron isolates may have fired in between."""
    hidden_support: float = 0.1
    """Largest share of neurons at which the row of a sample that was solved for may not be what its
    pre-activations at both ends say."""
    same_row: float = 1e-6
    """Two samples whose rows differ by less have been read from one."""
    same_ratio: float = 1e-5
    """Ratios of the entries of two rows that differ by less are the same, as a share."""
    own_support: float = 0.25
    """How many times better a sample's own row must fit it than any other's, as a share."""
    firing_share_dropout: float = 0.25
    """The same where dropout may hide some."""

    # Labels.
    copies_tried: int = 8
    """Copies that are tried with the label that determines the total; the others have any
    number."""
    whole_count: float = 0.05
    """How far from a whole number a count may come out."""

    # Known samples.
    compare_directions: int = 2
    """Random directions in which different samples hardly ever agree."""
    vague_reading: float = 0.03
    """Different samples may be this near to each other, relative to the typical size of an
    entry."""

    # Refinement.
    residual_slack: float = 3.0
    """The residual at a neuron is known up to this many standard errors of the fit."""
    refine_steps: int = 4
    """How often samples and sensitivities are fitted in turns, at most."""
    honest: float = 1.5
    """A sample is known up to this many standard errors of the fit."""
    fit_sketch: int = 16
    """Random combinations of columns that represent all of them while the weights are found."""
    sharp: float = 1000.0
    """The structure does not sharpen sensitivities that are known up to this many rounding
    errors."""
    sharp_computed: float = 1e-08
    """The same, as a relative error, where they are computed: the fit does the rest."""

    # Least squares.
    reweightings: int = 4
    """How often the weights follow the gaps."""
    outlier: float = 3.0
    """How many times its error an equation may be off before its weight is reduced."""
    least_free: float = 0.05
    """An equation that alone determines an unknown is always satisfied; its gap counts for more."""
    surplus: float = 0.5
    """How independent of the unknowns an equation must be to count as evidence for them."""
    inverse_corrections: int = 2
    """Newton steps towards the inverse."""
    clean_equations: int = 10
    """Clean equations in excess of the unknowns from which on the gaps measure the errors."""

    # The residual.
    half_the_digits: float = 2.0 ** (-26)
    """Half of the digits that float64 has."""
    wide: int = 2048
    """Number of neurons from which on neuron space is used, because input space takes a product for
    every examination."""
    scale_candidates: int = 256
    """Candidates that show how large a typical one is."""

    # Noise.
    noise_neurons: int = 32
    """Neurons that show whether there is noise."""

    # The first look.
    firing_candidates: int = 128
    """Candidates that show how often neurons fire."""
    by_far: float = 2.0
    """Margin between this test and the certificate's, which differ in rounding errors only."""

    # Wide matrices.
    sketch_width: int = 16
    """Random directions in feature space; they give a norm to within about a sixth."""

    # The end.
    other_numbers: float = 0.001
    """Numbers this far from those a sample was certified by are different."""
    check_directions: int = 8
    """Random directions in which numbers are compared."""
    least_chance: float = 1e-300
    """Evidence is not counted beyond this."""
    alien_noise: float = 0.1
    """Noise, relative to the gradient, from which on the update could as well be of other
    weights."""


LIMITS = Limits()
