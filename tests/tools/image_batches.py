#!/usr/bin/env python3
"""Batches with images, and the values in them that models read: what measure_images.py and its kin have in common.

The emulation holds no values, but these models read some: how many patches an image has, which tokens are an image's.  Whole
numbers that the batch brings are therefore carried along (CONSTANT_NUMEL_LIMIT), and selections by masks of them have a shape.
The folder of the oracle (measure_memory.py, fakecuda.py) must be importable.
"""
import torch
import torch._subclasses.fake_tensor as fake
from torch.utils._mode_utils import no_dispatch

fake.CONSTANT_NUMEL_LIMIT = 1 << 22
IMAGE = 2001                                    # the token that stands for a feature
SIDE, PATCH, GRID = 112, 14, 8                  # pixels of an image, of a patch, patches a side
FEATURES = {}                                   # of each image, where a model selects as many
SIDES = {"gemma4": 126, "got_ocr2": 256, "pp_chart2table": 256, "florence2": 128}        # pixels of an image where SIDE does not fit


# ---- values that are known ----

def known(t):
    return getattr(t, "constant", None)


def with_values():
    plain_arange, plain_tensor, plain_getitem = torch.arange, torch.tensor, torch.Tensor.__getitem__

    def arange(*a, **kw):
        out = plain_arange(*a, **kw)
        if isinstance(out, fake.FakeTensor) and not out.is_floating_point() and out.numel() < 1 << 20:
            with no_dispatch():
                out.constant = plain_arange(*[int(x) for x in a], dtype=out.dtype)
        return out

    def tensor(x, *a, **kw):
        """Scalars of a list are read on the host, as the card's would be."""
        if isinstance(x, (list, tuple)) and x and isinstance(x[0], torch.Tensor):
            x = [int(known(t).item()) if known(t) is not None else 0 for t in x]
        return plain_tensor(x, *a, **kw)

    def getitem(self, ix):
        if isinstance(ix, fake.FakeTensor) and ix.dtype == torch.bool and isinstance(self, fake.FakeTensor):
            if known(ix) is None and ix.dim() == 1:         # none of the images is padding
                return plain_getitem(self, tensor(list(range(ix.shape[0]))))
            if known(ix) is None and ix.dim() == 2:         # as many features of each image as it has tokens
                each = FEATURES["of each"]
                rows = [(i, j) for i in range(ix.shape[0]) for j in range(each[i % len(each)])]
                return plain_getitem(self, tuple(tensor([r[i] for r in rows]) for i in range(2)))
            if known(ix) is not None and known(self) is None:
                with no_dispatch():
                    at = known(ix).nonzero()
                    parts = [at[:, i].tolist() for i in range(ix.dim())]
                return plain_getitem(self, tuple(tensor(p) for p in parts))
        return plain_getitem(self, ix)

    torch.arange, torch.tensor, torch.Tensor.__getitem__ = arange, tensor, getitem


def masks_by_values():
    """Whether a mask hides anything is read where it is known, else decided by the step (fakecuda.py)."""
    import transformers.masking_utils as masks
    decided = masks._ignore_bidirectional_mask_sdpa

    def ignore(mask, *a, **kw):
        values = known(mask) if mask is not None else None
        with no_dispatch():
            hides = values is not None and not bool(values.all())
        return False if hides else decided(mask, *a, **kw)
    masks._ignore_bidirectional_mask_sdpa = ignore


# ---- batches ----

def tokens(b, s, images, n, kinds=False):
    """Texts with n placeholders for every image; kinds: and which tokens those are."""
    row, kind, at = [1 + (7 * i) % 1000 for i in range(s)], [0] * s, 4
    for _ in range(images):
        row[at:at + n] = [IMAGE] * n
        kind[at:at + n] = [1] * n
        at += n + 3
    assert len(row) == s, "the images do not fit"
    d = dict(input_ids=torch.tensor([row] * b), labels=torch.tensor([row] * b))
    if kinds:
        d["mm_token_type_ids"] = torch.tensor([kind] * b)
    return d


def pixels(d, dt, *shape, **more):
    d.update(pixel_values=torch.rand(*shape).to(dt), **more)
    return d


def flat(n, types=False, sizes=False):
    """Images as they are, n features each."""
    def batch(cfg, b, s, images, dt):
        d = tokens(b, s, images, n, types)
        if types:
            d["token_type_ids"] = d.pop("mm_token_type_ids")
        if sizes:
            d["image_sizes"] = torch.tensor([[SIDE, SIDE]] * (b * images))
        return pixels(d, dt, b * images, 3, SIDE, SIDE)
    return batch


def grid(b, images):
    return torch.tensor([[1, GRID, GRID]] * (b * images))


def cut(cfg, b, s, images, dt):
    """Patches as rows, with the grid of every image (Qwen, GLM)."""
    v = cfg.vision_config
    d = tokens(b, s, images, GRID ** 2 // v.spatial_merge_size ** 2, True)
    return pixels(d, dt, b * images * GRID ** 2, v.in_channels * v.temporal_patch_size * PATCH ** 2,
                  image_grid_thw=grid(b, images))


def paddle(cfg, b, s, images, dt):
    d = tokens(b, s, images, GRID ** 2 // cfg.vision_config.spatial_merge_size ** 2, True)
    return pixels(d, dt, b * images * GRID ** 2, 3, PATCH, PATCH, image_grid_thw=grid(b, images))


def video_llama(cfg, b, s, images, dt):
    return pixels(tokens(b, s, images, GRID ** 2), dt, b * images * GRID ** 2, 3 * PATCH ** 2,
                  image_grid_thw=grid(b, images), image_merge_sizes=torch.tensor([1] * (b * images)))


def masked(cfg, b, s, images, dt):
    d = tokens(b, s, images, GRID ** 2 // cfg.scale_factor ** 2)
    return pixels(d, dt, b, images, 3, SIDE, SIDE,
                  pixel_attention_mask=torch.tensor([[[[1] * SIDE] * SIDE] * images] * b))


def padded(cfg, b, s, images, dt):
    d = tokens(b, s, images, GRID ** 2 // cfg.downsample_factor ** 2)
    return pixels(d, dt, b * images, GRID ** 2, 3 * PATCH ** 2,
                  pixel_attention_mask=torch.tensor([[1] * GRID ** 2] * (b * images)),
                  spatial_shapes=torch.tensor([[GRID, GRID]] * (b * images)))


def tiled(cfg, b, s, images, dt):
    """An image of one tile: it and the overview, and a newline behind every row of the tile.  Two images to us."""
    return pixels(tokens(b, s, 1, GRID ** 2 + GRID * (GRID + 1)), dt, b, 2, 3, SIDE, SIDE,
                  image_sizes=torch.tensor([[SIDE, SIDE]] * b))


def latents(cfg, b, s, images, dt):
    """Images and their masks apart for every text, resampled (IDEFICS 2)."""
    d = tokens(b, s, images, cfg.perceiver_config.resampler_n_latents)
    return pixels(d, dt, b, images, 3, SIDE, SIDE,
                  pixel_attention_mask=torch.tensor([[[[1] * SIDE] * SIDE] * images] * b))


def marked(cfg, b, s, images, dt):
    """Features between two tokens of their own, whose embeddings are the tower's (Ovis 2)."""
    d = flat(GRID ** 2 // cfg.vision_config.hidden_stride ** 2)(cfg, b, s, images, dt)
    row = d["input_ids"][0].tolist()
    first, last = row.index(IMAGE), len(row) - 1 - row[::-1].index(IMAGE)
    row[first - 1], row[last + 1] = cfg.visual_indicator_token_ids[:2]
    d.update(input_ids=torch.tensor([row] * b), labels=torch.tensor([row] * b))
    return d


def squares(n, side):
    """Images of another side."""
    def batch(cfg, b, s, images, dt):
        return pixels(tokens(b, s, images, n), dt, b * images, 3, side, side)
    return batch


def crossed(cfg, b, s, images, dt):
    """Tiles of every image, which every token may attend to (Mllama)."""
    v = cfg.vision_config
    tiles, side = v.max_num_tiles, v.image_size
    return pixels(tokens(b, s, 1, 1), dt, b, images, tiles, 3, side, side,
                  aspect_ratio_ids=torch.tensor([[6] * images] * b),
                  aspect_ratio_mask=torch.tensor([[[1] * tiles] * images] * b),
                  cross_attention_mask=torch.tensor([[[[1] * tiles] * images] * s] * b))


def pooled(cfg, b, s, images, dt):
    """Patches as rows with their places, behind them padding; k by k make a feature (Gemma 4)."""
    k, side = cfg.vision_config.pooling_kernel_size, SIDES["gemma4"] // PATCH
    n, most = (side // k) ** 2, cfg.vision_soft_tokens_per_image * k * k
    FEATURES["of each"] = [n]
    places = [[i % side, i // side] for i in range(side * side)] + [[-1, -1]] * (most - side * side)
    return pixels(tokens(b, s, images, n, True), dt, b * images, most, 3 * PATCH ** 2,
                  image_position_ids=torch.tensor([places] * (b * images)))
