"""Plots and the HTML representation of a fitted estimator in a notebook."""

from typing import Any

import numpy as np

from thrifty.arrays import Floats
from thrifty.engine.evidence.evidence import Evidence
from thrifty.engine.plots import (
    Purchased,
    as_html,
    draw_in_force,
    draw_purchases,
    draw_route,
    html_table,
    purchased,
    shortened,
)
from thrifty.engine.table.table import Table
from thrifty.engine.walk.chain import Chain
from thrifty.engine.walk.policy import route_by
from thrifty.engine.walk.stage import nodes_of
from thrifty.errors import InvalidInputError


class Notebook:
    """Plots and HTML of a fitted estimator with a chain."""

    chain_: Chain
    n_features_in_: int

    def plot_route(self, row: Any, ax: Any = None) -> Any:
        """Draw the way of one row: what it pays at each stage, and what that stage would answer.

        The full model is asked if the row reaches it.

        Parameters
        ----------
        row : table with one row, or array of shape (n_features,)
            The row.
        ax : matplotlib axes, optional
            Where to draw; new ones by default.

        Returns
        -------
        matplotlib axes
        """
        table = row if Table.of(row).kind or np.ndim(row) == 2 else np.asarray(row)[None, :]
        if np.shape(table)[0] != 1:
            raise InvalidInputError(
                f"plot_route draws the way of one row; got {np.shape(table)[0]}. Write X[3:4] for the row of number 3."
            )
        return draw_route(self.explain(table)[0], ax)  # type: ignore[attr-defined]  # of the estimator that is mixed in

    def plot_purchases(self, X: Any = None, ax: Any = None) -> Any:
        """Draw how many rows make each purchase, at the operating point in force.

        Parameters
        ----------
        X : table, optional
            Rows to count; by default the rows of ``evidence_``.
        ax : matplotlib axes, optional
            Where to draw; new ones by default.

        Returns
        -------
        matplotlib axes
        """
        if X is None:
            return draw_purchases(self._purchased(self._shares()), ax)
        chain, reader = self.chain_, self._reader(X)  # type: ignore[attr-defined]  # the same
        place = chain.places(chain.walk(reader))
        shares = np.bincount(place, minlength=len(chain.bought_by_place)) / len(place)
        return draw_purchases(self._purchased(shares), ax)

    def _purchased(self, shares: Floats) -> list[Purchased]:
        chain = self.chain_
        return purchased(chain.price_list, chain.bought_by_place, shares, self._names())

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(self.n_features_in_)])
        return list(map(str, names))

    def _shares(self) -> Floats:
        """Shares of the rows of the evidence that are answered at each place, shape (n_stages + 1,)."""
        evidence: Evidence = self._evidence()  # type: ignore[attr-defined]  # the same
        chain = self.chain_
        if chain.behind is not None or chain.has_forks:
            missing = "what each row buys" if chain.has_forks else "what rows buy in the second one"
            kind = "a graph of purchases" if chain.has_forks else "a chain before a chain"
            raise InvalidInputError(
                f"the evidence of {kind} does not hold {missing}. Give rows: plot_purchases(X)."
            )
        policy, n_places = chain.policy, chain.n_stages + 1
        shares = np.zeros(n_places)
        for point, weight in ((policy.lower, 1.0 - policy.share), (policy.upper, policy.share)):
            route = route_by(evidence.gate, policy.thresholds[point])
            shares += weight * np.bincount(route, minlength=n_places) / len(route)
        return shares

    # -- pages of notebooks --------------------------------------------------------------------

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._page()  # type: ignore[misc]  # scikit-learn's

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]  # scikit-learn's
        if "text/html" in bundle:
            bundle["text/html"] += self._page()
        return bundle

    def _page(self) -> str:
        """Frontier and stages; nothing before the fit, nor where a file did not keep the evidence."""
        if "chain_" not in vars(self):
            return ""
        try:
            parts = [self._frontier_as_html(), self._stages_as_html()]
        except InvalidInputError:
            return ""
        style = "display:flex;flex-wrap:wrap;gap:12px 24px;margin:8px 0;font-size:12px"
        return f'<div style="{style}">{"".join(parts)}</div>'

    def _frontier_as_html(self: Any) -> str:
        frontier, cost, score = self.frontier_, self.expected_cost_, self.expected_score_
        score = -score if frontier.is_priced else score

        name = self.chain_.task.quality_name

        def draw(ax: Any) -> None:
            frontier.plot(ax)
            title = f"in force (dot): {score:.4g} for {cost:.4g} per row"
            draw_in_force(ax, cost, score, title=title)

        return as_html(draw, f"{name} against mean cost per row")

    def _stages_as_html(self) -> str:
        chain, names = self.chain_, self._names()
        if chain.behind is not None:
            return f"<div>{chain.n_stages} stages, the last {chain.behind.n_stages} in a chain of their own</div>"
        if chain.has_forks:
            n_nodes = sum(len(nodes_of(stage)) for stage in chain.stages)
            return f"<div>{chain.n_stages} stages of {n_nodes} nodes: rows buy in orders of their own</div>"
        shares = self._shares()
        held, lines = np.zeros(len(names), dtype=bool), []
        for place, paid in enumerate(chain.cost_by_place.tolist()):
            new = [names[column] for column in np.flatnonzero(chain.bought_by_place[place] & ~held)]
            held |= chain.bought_by_place[place]
            called = f"stage {place}" if place < chain.n_stages else "full model"
            lines.append((f"{called}: {shortened(new)}", f"{paid:.4g}", f"{shares[place]:.1%}"))
        return f"<div>{html_table(('buys', 'paid by then', 'answers'), lines)}</div>"
