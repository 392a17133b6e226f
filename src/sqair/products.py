"""Matrix products whose results keep 32 bits, though their factors may have fewer."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def wide_product(left: Float[Array, "*rows K"], right: Float[Array, "K F"]) -> Float[Array, "*rows F"]:
    """The product with 32 bits or more. Gradients pass back in the precision of the factors, as the products they are.

    Factors of 16 bits stay such there: jax would widen the gradient, and a GPU multiplies numbers of two kinds slowly.
    """
    return jnp.matmul(left, right, preferred_element_type=jnp.promote_types(left.dtype, jnp.float32))


@wide_product.defjvp
def _wide_product_jvp(factors: tuple[Array, Array], changes: tuple[Array, Array]) -> tuple[Array, Array]:
    (left, right), (of_left, of_right) = factors, changes
    product = jnp.matmul(left, right, preferred_element_type=jnp.promote_types(left.dtype, jnp.float32))
    return product, (of_left @ right + left @ of_right).astype(product.dtype)
