"""Mixes of two operating points, which a budget rarely needs."""


def mixed_at(system, budget):
    """The system at the mix of two neighbouring points of its fit that spends a budget, as files of 0.3 may hold it."""
    mixed, learned = system.at(budget=budget), system._learned
    mixed.chain_ = learned.at(learned.policy.within(budget))
    return mixed
