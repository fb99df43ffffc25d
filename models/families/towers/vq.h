/* Vector-quantised autoencoders: their sizes (image_tokens.c), and the encoder as it runs (vq_run.c). */
#ifndef OOM_VQ_H
#define OOM_VQ_H

#include "blocks/image.h"

enum { VQ_GROUPS = 32, VQ_MAX_LEVELS = 16 };
struct vq {
	uint64_t base, multiplier[VQ_MAX_LEVELS], n, blocks, in, out, latent, embed;
	bool twice;                     /* double_latent */
	bool attends[VQ_MAX_LEVELS], middle;
	/* Emu 3: its attention's width, linear layers; halvings of time; channels of the quantised
	 * features that steer the decoder's norms */
	uint64_t linear, times, steered;
};

/* The codes of square images, a sample of the batch (t->m_b) each; *n: of one. */
struct oom_val oom_vq_tokens(struct oom_tape *t, const struct vq *q, uint64_t codes, uint64_t side, struct oom_val pixels,
			     uint64_t *n);

#endif
