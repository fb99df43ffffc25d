/* Convolutional stems and blocks, patch attention and windows, tensor by tensor: sums made by hand from
 * transformers 5.12's modelling files, PyTorch 2.14's derivatives.yaml and aten's kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "block_case.h"
#include "blocks/image.h"
#include "blocks/sparse.h"

/* x seen as an image of C x SIDE x SIDE: S * H elements, 2 x 32 x 32 */
enum { C = 2, SIDE = 32, OUT = 16, PATCH = 8, HEADS = 4 };

static struct oom_map image(struct oom_tape *t, struct oom_val x)
{
	return oom_tokens_map(t, x, C, SIDE, SIDE);
}

static struct oom_val patches(struct oom_tape *t, struct oom_val x)
{
	return oom_conv2d(t, "projection", image(t, x),
			  &(struct oom_conv){.out = OUT, .kernel = PATCH, .stride = PATCH, .bias = true})
		.x;
}

/* A patch embedding: (32 / 8)^2 patches of 16 channels; convolution saves input and weight, neither made
 * here.  Kernel C x 8 x 8 and a bias for every channel. */
static void patch_embedding(void **state)
{
	const uint64_t out = SEQUENCES(OUT * 16, 2);

	(void)state;
	block_begin();
	EXPECT(patches, "precision=bf16", .allocated = out, .saved = 0, .params = OUT * C * 64 + OUT);
	/* autocast's copies of image, weight and bias, of which the first two are saved */
	EXPECT(patches, "precision=amp-bf16",
	       .allocated = TOKENS(H, 2) + bytes_of(OUT * C * 64, 2) + bytes_of(OUT, 2) + out,
	       .saved = TOKENS(H, 2) + bytes_of(OUT * C * 64, 2), .params = OUT * C * 64 + OUT);
}

static struct oom_val stem(struct oom_tape *t, struct oom_val x)
{
	const struct oom_conv c = {.out = OUT, .kernel = 3, .stride = 2, .pad = 1};

	return oom_conv_bn_act(t, image(t, x), &c, OOM_ACT_RELU).x;
}

/* ResNet's convolution, batch norm, ReLU, 16 x 16 out: batch norm saves the convolution's result and, in
 * fp32 (one per channel), mean and reciprocal deviation; ReLU saves its own result.  Weight and bias of
 * the norm are parameters, its running statistics are not. */
static void convolution_norm_activation(void **state)
{
	const uint64_t map = SEQUENCES(OUT * 256, 4), kept = 2 * bytes_of(OUT, 4);

	(void)state;
	block_begin();
	EXPECT(stem, "precision=fp32", .allocated = 3 * map + kept, .saved = 2 * map + kept,
	       .params = OUT * C * 9 + 2 * OUT);
}

static struct oom_val depthwise(struct oom_tape *t, struct oom_val x)
{
	const struct oom_conv c = {.out = C, .kernel = 7, .pad = 3, .groups = C, .bias = true};

	return oom_conv2d(t, "dwconv", image(t, x), &c).x;
}

/* One kernel of 7 x 7 for each channel, over the same map. */
static void depthwise_convolution(void **state)
{
	(void)state;
	block_begin();
	EXPECT(depthwise, "precision=fp32", .allocated = TOKENS(H, 4), .saved = 0, .params = C * 49 + C);
}

static struct oom_val pool(struct oom_tape *t, struct oom_val x)
{
	return oom_max_pool(t, image(t, x), 3, 2, 1).x;
}

/* 16 x 16 maxima, and where each was: an int64 that the backward pass reads. */
static void max_pool(void **state)
{
	(void)state;
	block_begin();
	EXPECT(pool, "precision=bf16", .allocated = SEQUENCES(C * 256, 2) + SEQUENCES(C * 256, 8),
	       .saved = SEQUENCES(C * 256, 8), .params = 0);
}

static struct oom_val group(struct oom_tape *t, struct oom_val x)
{
	return oom_group_norm(t, "norm", image(t, x), 1).x;
}

/* native_group_norm saves its input, mean and rstd: one of each per image and group. */
static void group_norm(void **state)
{
	(void)state;
	block_begin();
	EXPECT(group, "precision=fp32", .allocated = TOKENS(H, 4) + 2 * SEQUENCES(1, 4),
	       .saved = 2 * SEQUENCES(1, 4), .params = 2 * C);
}

static struct oom_val written(struct oom_tape *t, struct oom_val x)
{
	const struct oom_attn at = {.heads = HEADS, .kv_heads = HEADS, .d = H / HEADS, .dv = H / HEADS,
				    .mq = t->m_bs, .mk = t->m_bs, .sk = t->m_s, .mask = oom_none(),
				    .kv_from = oom_none()};
	struct oom_val p[3];

	for (int i = 0; i < 3; i++)
		p[i] = oom_project_heads(t, "qkv", x, H, true, HEADS);
	return oom_written_attention(t, &at, p[0], p[1], p[2], NULL);
}

/* The older attention of vision models: q k^T, divided, softmax in the scores' own type (which saves its
 * result, the weights that the second product saves), the context laid out.  Every product copies its
 * factors into rows. */
static void attention_written_out(void **state)
{
	const uint64_t scores = bytes_of((uint64_t)B * HEADS * S * S, 2);

	(void)state;
	block_begin();
	block_arch()->d_model = H;
	EXPECT(written, "precision=bf16",
	       .allocated = 3 * TOKENS(H, 2) + 3 * TOKENS(H, 2) + 3 * scores + 2 * TOKENS(H, 2),
	       .saved = 3 * TOKENS(H, 2) + scores, .params = 3 * (H * H + H));
}

enum { WINDOW = 16, HALF = WINDOW / 2 };

static struct oom_val window(struct oom_tape *t, struct oom_val x)
{
	struct oom_frame f = {.t = t};
	const struct oom_window w = {.width = WINDOW, .heads = HEADS, .d = H / HEADS,
				     .masked = oom_name(&f, oom_new(t, "is_index_masked", t->m_bs, D(1),
								    OOM_U8))};

	return oom_leave(&f, oom_window_attention(t, &w, x));
}

/* Longformer, models/longformer/modeling_longformer.py.  x is turned to (tokens, batch), so that each of
 * the three projections saves a copy of its own; 32 tokens make three overlapping chunks of 16 queries and
 * keys, which einsum lays out; four chunks of 8 queries meet 24 keys in the second product. */
static void window_attention(void **state)
{
	const uint64_t chunks = 2 * S / WINDOW - 1, blocks = S / HALF;
	const uint64_t projections = 3 * TOKENS(H, 4),
		       chunked = 2 * SEQUENCES(chunks * WINDOW * H, 4),
		       /* before the first token and after the last: HALF rows of HALF + 1, a byte each */
		       edges = 2 * SEQUENCES(HALF * (HALF + 1) * HEADS, 1),
		       softmax = TOKENS(HEADS * (WINDOW + 1), 4), masked = TOKENS(1, 1),
		       /* weights padded to 3 halves, so that a view shifts each row by one: + 2 per row */
		       weights = TOKENS(HEADS * (3 * HALF + 2), 4),
		       values = SEQUENCES(blocks * 3 * HALF * H, 4);
	struct block_sums got;

	(void)state;
	block_begin();
	block_arch()->d_model = H;
	got = block_run(window, "precision=fp32");
	assert_int_equal(got.saved, projections + chunked + edges + softmax + masked + weights + values);
	/* query, key, value, and the three of global attention, which idle */
	assert_int_equal(got.params, 6 * (H * H + H));
}

static double again;

static struct oom_val normed(struct oom_tape *t, struct oom_val x)
{
	const struct oom_map m = image(t, x);
	const uint16_t mono = m.x.mono;
	const struct oom_map y = oom_batch_norm(t, "norm", m);

	again = t->sums->tally.twice[mono];
	return y.x;
}

/* A batch norm reads its map twice, for the sums and to use them: 2 x 32 x 32 elements of each image in the batch's
 * type; a group norm, whose groups a block of threads keeps, does not. */
static void read_twice(void **state)
{
	(void)state;
	block_begin();
	block_run(normed, "precision=fp32");
	assert_true(again == C * SIDE * SIDE * 4.0);
	block_run(normed, "precision=bf16");
	assert_true(again == C * SIDE * SIDE * 2.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patch_embedding), cmocka_unit_test(convolution_norm_activation),
		cmocka_unit_test(depthwise_convolution), cmocka_unit_test(max_pool),
		cmocka_unit_test(group_norm), cmocka_unit_test(attention_written_out),
		cmocka_unit_test(window_attention), cmocka_unit_test(read_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
