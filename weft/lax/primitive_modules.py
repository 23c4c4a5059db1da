"""Modules of primitives that `import weft` does not load.

Exported programs, texts of jaxprs and compiler passes may name these primitives before their modules are imported.
"""

from __future__ import annotations

import importlib

# The primitives of each module.
MODULES = {
    "weft.compiler.fuse.fusion": "fusion",
    "weft.compiler.target.cuda.library.solvers": "solver",
    "weft.primitives.control.custom_vmap": "custom_vmap_call",
    "weft.primitives.control.foreign": "ffi_call",
    "weft.primitives.movement.scatter_flagged": "scatter_flagged",
    "weft.scipy.special.primitives.bessel": "bessel_i0 bessel_i1",
    "weft.scipy.special.primitives.bessel_j": "bessel_j",
    "weft.scipy.special.primitives.error": "dawson log_ndtr ndtr ndtri normal_density scaled_erfc",
    "weft.scipy.special.primitives.exponential_integrals": "exp1 expi expn spence",
    "weft.scipy.special.primitives.faddeeva": "faddeeva",
    "weft.scipy.special.primitives.gamma": (
        "beta gamma gamma_difference gamma_ratio log_beta log_beta_density log_gamma_density"
    ),
    "weft.scipy.special.primitives.hypergeometric": "confluent hypergeometric",
    "weft.scipy.special.primitives.information": "boxcox boxcox1p entr kl_div logit rel_entr xlog1py xlogy",
    "weft.scipy.special.primitives.integrals": (
        "cosine_integral fresnel_cosine fresnel_sine owens_t quadratic_cosine quadratic_sine sine_integral"
    ),
    "weft.scipy.special.primitives.parameters": "hurwitz_zeta incomplete_beta riemann_zeta",
}
_DEFINING_MODULE = {name: module for module, names in MODULES.items() for name in names.split()}


def import_primitive(name: str) -> None:
    """Import the module that defines the primitive `name`, which registers it; do nothing for other names."""
    if name in _DEFINING_MODULE:
        importlib.import_module(_DEFINING_MODULE[name])
