"""Predictions of one support set under every ridge strength at once: exactly those of a float64 solution for each.

In the eigenbasis of the support set a ridge strength only rescales R coordinates. The rescalings of 25 strengths are
smooth functions of the eigenvalues, so a few (4 to 15) span them to three digits: the test images are multiplied
with the weights of those few, in float32, and their combinations give the scores under every strength. That decides
every image whose two best classes are further apart than the error can be; the others are scored again in float64.

The error bound: Cauchy-Schwarz for what the few leave out, and for rounding the probabilistic bound of Higham and Mary
(2019, doi:10.1137/18M1226312), 8 sqrt(n) u |x| |w|.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.tasks._ridge import BIAS_FEATURE, SupportSet

LEFT_OUT = 2e-3  # of a score's scale; a larger one means fewer products and more images that are scored again
ROUNDING = 8 * 2.0**-24
AT_ONCE = 256  # test images: their scores under all strengths stay in the processor's cache


class Sweep:
    """Test features, prepared once for all the support sets that are swept over them."""

    def __init__(self, test_MD: np.ndarray) -> None:
        self.centre_D = test_MD.mean(0, dtype=np.float64)
        self.x_MD = np.asarray(test_MD - self.centre_D, dtype=np.float64)
        self.single_MD = self.x_MD.astype(np.float32)
        self.squared_MD = self.single_MD**2
        self.norm_M = np.sqrt(self.squared_MD.sum(1, dtype=np.float64))

    def predict(self, support: SupportSet, ridges: Sequence[float]) -> np.ndarray:
        """The class with the largest score, (len(ridges), M)."""
        heads = _Heads(support, ridges, centre_D=self.centre_D)
        basis_DC = heads.basis_DC.astype(np.float32)
        shift = heads.shift_D / support.std_D
        square_M = self.squared_MD @ (support.std_D**-2.0).astype(np.float32)
        cross_M = self.single_MD @ (shift / support.std_D).astype(np.float32)
        length_M = np.sqrt(np.maximum(square_M - 2 * cross_M + shift @ shift, 0))
        combine_LQ = heads.combine_LQ.astype(np.float32)
        offset_LK = heads.offset_LK.astype(np.float32)
        found_ML = np.empty((len(self.x_MD), len(ridges)), dtype=np.int64)
        for start in range(0, len(self.x_MD), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            basis_BQK = (self.single_MD[part] @ basis_DC).reshape(-1, combine_LQ.shape[1], offset_LK.shape[1])
            scores_BLK = combine_LQ @ basis_BQK + offset_LK
            best_BL = scores_BLK.argmax(-1)
            error_BL = length_M[part, None] * heads.left_out_L + self.norm_M[part, None] * heads.rounding_L
            top_BL = np.take_along_axis(scores_BLK, best_BL[..., None], -1)
            np.put_along_axis(scores_BLK, best_BL[..., None], -np.inf, -1)
            close_BL = top_BL[..., 0] - scores_BLK.max(-1) <= 2 * error_BL
            if close_BL.any():
                rows_R, columns_R = np.nonzero(close_BL)
                best_BL[rows_R, columns_R] = heads.exact(self.x_MD[part], rows_R, columns_R)
            found_ML[part] = best_BL
        return found_ML.T


class _Heads:
    """The weights of the few, how they combine, and what that leaves out. L strengths, Q of the few, K classes.

    Scores of each strength are in units of their own size, which changes no order.
    """

    def __init__(self, support: SupportSet, ridges: Sequence[float], *, centre_D: np.ndarray) -> None:
        from scipy import linalg

        root_R = np.sqrt(np.maximum(support.eigenvalues_R, 1e-12))
        if support.vectors_DD is None:
            self.directions_DR = support.x_ND.T @ (support.basis_NR / root_R)
            self.targets_RK = support.projected_RK
        else:
            self.directions_DR = support.vectors_DD
            self.targets_RK = support.projected_RK / root_R[:, None]
        self.std_D, self.shift_D = support.std_D, support.mean_D - centre_D
        ridge_L = np.asarray(ridges, dtype=np.float64)
        self.scale_RL = root_R[:, None] / (support.eigenvalues_R[:, None] + ridge_L)
        weight_R = np.maximum(np.sqrt((self.targets_RK**2).sum(1)), 1e-12)
        size_L = np.sqrt(((weight_R[:, None] * self.scale_RL) ** 2).mean(0))
        self.scale_RL /= size_L
        count = len(support.x_ND)
        bias_LK = support.targets_NK.sum(0) / (count * BIAS_FEATURE**2 + ridge_L)[:, None] * BIAS_FEATURE**2
        self.bias_LK = bias_LK / size_L[:, None]
        left_RQ, values_Q, right_QL = linalg.svd(weight_R[:, None] * self.scale_RL, full_matrices=False)
        for few in range(1, len(values_Q) + 1):
            basis_RQ = left_RQ[:, :few] * values_Q[:few] / weight_R[:, None]
            missed_RL = self.scale_RL - basis_RQ @ right_QL[:few]
            self.left_out_L = np.sqrt((missed_RL**2).T @ self.targets_RK**2).max(1)
            if self.left_out_L.max() <= LEFT_OUT:
                break
        self.combine_LQ = right_QL[:few].T
        stretched_RC = (basis_RQ[:, :, None] * self.targets_RK[:, None]).reshape(len(weight_R), -1)
        self.basis_DC = (self.directions_DR @ stretched_RC) / self.std_D[:, None]
        constant_QK = (self.shift_D @ self.basis_DC).reshape(few, -1)
        self.offset_LK = self.bias_LK - self.combine_LQ @ constant_QK
        norm_QK = np.sqrt((self.basis_DC**2).sum(0)).reshape(few, -1)
        self.rounding_L = ROUNDING * np.sqrt(len(self.std_D)) * (np.abs(self.combine_LQ) @ norm_QK).max(1)

    def exact(self, x_BD: np.ndarray, rows_R: np.ndarray, columns_R: np.ndarray) -> np.ndarray:
        """The best class of image `rows_R[i]` under strength `columns_R[i]`, in float64."""
        wanted, inverse = np.unique(rows_R, return_inverse=True)
        turned = ((x_BD[wanted] - self.shift_D) / self.std_D) @ self.directions_DR
        scores = (turned[inverse] * self.scale_RL.T[columns_R]) @ self.targets_RK + self.bias_LK[columns_R]
        return scores.argmax(-1)
