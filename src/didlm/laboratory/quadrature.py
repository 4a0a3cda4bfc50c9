"""Integrals over log-time tau = -log u, by Gauss-Legendre panels.

In tau the loss weight is 1 and insertion scores are themselves the rates of the reverse chain
(Eq. log-time), so what is singular at u = 0 becomes smooth and decays: few nodes reach 1e-12.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class LogTime:
    """Nodes over tau in [0, end]: P panels of C nodes each."""

    end: float = 42.0
    panels: int = 168
    order: int = 10

    @property
    def width(self) -> float:
        """The width of a panel."""
        return self.end / self.panels

    @cached_property
    def deleted(self) -> Tensor:
        """The probability of deletion u = e^-tau at every node [P * C]."""
        points = (np.polynomial.legendre.leggauss(self.order)[0] + 1) / 2
        return torch.exp(
            -torch.from_numpy(self.width * np.add.outer(range(self.panels), points))
        ).flatten()

    @cached_property
    def weights(self) -> Tensor:
        """Quadrature weights for an integral over tau [P * C]."""
        weights = np.polynomial.legendre.leggauss(self.order)[1] / 2 * self.width
        return torch.from_numpy(np.tile(weights, self.panels))

    @cached_property
    def within_panel(self) -> Tensor:
        """Integrals from a panel's start to its nodes: [C, C], one row per node.

        Row k integrates the polynomial through the values at the nodes up to node k: the matrix of
        the Gauss collocation method, of order 2 C.
        """
        points = np.polynomial.legendre.leggauss(self.order)[0]
        values = np.polynomial.legendre.legvander(points, self.order - 1)
        integrals = np.stack(
            [
                np.polynomial.legendre.legval(points, np.polynomial.legendre.legint(unit, lbnd=-1))
                for unit in np.eye(self.order)
            ],
            axis=1,
        )
        return torch.from_numpy(integrals @ np.linalg.inv(values) * self.width / 2)
