"""A scan over time whose gradient is made of few, large operations. It knows nothing of the model.

What `jax.grad` makes of `lax.scan` is right, but slow on a GPU, where a training step of this model is limited by the
number of its operations, not by their size. Here the values are the same, and:

* **Weight gradients leave the loop.** They need no other iteration: the loop keeps the cotangent factor of each such
  product, and after it one large product over all iterations is made.
* **Little is saved, and in one piece.** Of the forward pass only products, sums and the like are kept (`is_costly`);
  what is cheap is made again backwards, where it vanishes in other operations. What an iteration keeps is packed into
  one array, unless its parts are large (packing.py). Parameters, and what is made of them alone, are not kept at all.
* **Branches cost what they run**, forwards and backwards: iterations from `length` on, and the sides of `lax.cond`.

How it is done: the body is traced once and cut at its conditionals into parts (parts.py). Forwards each part runs under
`jax.vjp`, and its residuals are saved. Backwards each part's pullback is traced and divided (division.py): operations
that lead to another part or iteration stay in the loop, sums and products that lead to parameters alone follow it.
"""

from sqair.loops.limit import limited
from sqair.loops.scan import scan

__all__ = ["limited", "scan"]
