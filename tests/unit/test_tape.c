/* The bounds of a recording: what does not fit is an error with a sentence, and nothing is written
 * beyond an array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "blocks/mixers.h"
#include "tape/frame.h"
#include "tape/tape.h"

static struct oom_plan plan;

static struct oom_tape *tape(void)
{
	struct oom_tape *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	oom_tape_reset(t, NULL, &plan);
	t->val_b = 2;
	t->val_s = t->val_t = 100;
	return t;
}

/* The status is a limit's with these words; the tape is begun anew. */
static void limit(struct oom_tape *t, const char *words)
{
	assert_int_equal(t->status, OOM_ERR_LIMIT);
	if (!strstr(t->err.text, words))
		fail_msg("\"%s\" lacks \"%s\"", t->err.text, words);
	oom_tape_reset(t, NULL, &plan);
	assert_int_equal(t->status, OOM_OK);
	assert_string_equal(t->err.text, "");
}

static void drop(struct oom_tape *t)
{
	oom_tape_release(t);
	free(t);
}

static struct oom_val tensor(struct oom_tape *t)
{
	return oom_new(t, "x", t->m_bs, D(64), OOM_F32);
}

static void failures(void **state)
{
	struct oom_tape *t = tape();

	(void)state;
	oom_tape_fail(t, OOM_ERR_LIMIT, "the %s", "first");
	oom_tape_fail(t, OOM_ERR_INVALID, "the second");
	assert_string_equal(t->err.text, "the first");
	limit(t, "the first");
	drop(t);
}

static void nodes(void **state)
{
	struct oom_tape *t = tape();
	struct oom_val x = tensor(t);
	int32_t n = oom_node(t, 0, "f");

	(void)state;
	for (int i = 0; i < OOM_MAX_EDGES; i++)
		oom_node_edge(t, n, x);
	assert_int_equal(t->status, OOM_OK);
	oom_node_edge(t, n, x);
	assert_int_equal(t->nodes[n].n_edge, OOM_MAX_EDGES);
	limit(t, ".f has more than 4 inputs");

	x = tensor(t);
	n = oom_node(t, 0, "f");
	for (int i = 0; i < OOM_MAX_SAVED; i++)
		oom_node_save(t, n, x);
	assert_int_equal(t->status, OOM_OK);
	oom_node_save(t, n, x);
	assert_int_equal(t->nodes[n].n_saved, OOM_MAX_SAVED);
	assert_int_equal(t->refs[x.sto], 1 + OOM_MAX_SAVED);
	limit(t, ".f saves more than 18 tensors");

	x = tensor(t);
	n = oom_node(t, 0, "f");
	for (uint8_t i = 0; i < OOM_MAX_OUTS; i++)
		x = oom_node_out(t, n, i, x);
	assert_int_equal(t->status, OOM_OK);
	x = oom_node_out(t, n, OOM_MAX_OUTS, x);
	assert_true(x.slot < OOM_MAX_OUTS);
	assert_int_equal(t->nodes[n].n_out, OOM_MAX_OUTS);
	limit(t, "more than 6 outputs");
	drop(t);
}

static void names(void **state)
{
	struct oom_tape *t = tape();
	struct oom_hold h = {.n = 0};
	struct oom_frame f = {.t = t};

	(void)state;
	for (int i = 0; i < OOM_MAX_LOCALS; i++)
		oom_hold(t, &h, tensor(t));
	assert_int_equal(t->status, OOM_OK);
	oom_hold(t, &h, tensor(t));
	assert_int_equal(h.n, OOM_MAX_LOCALS);
	limit(t, "more than 48 named tensors");
	for (int i = 0; i < OOM_FRAME_NAMES; i++)
		oom_name(&f, tensor(t));
	assert_int_equal(t->status, OOM_OK);
	oom_name(&f, tensor(t));
	limit(t, "more than 48 names");
	drop(t);
}

/* Shared tensors stay alive until they are given up in the backward pass: one too many is not
 * freed early in silence. */
static void held(void **state)
{
	struct oom_tape *t = tape();
	struct oom_val shared[OOM_MAX_HELD + 1];

	(void)state;
	plan.grad_ckpt = OOM_CKPT_FULL;
	for (int i = 0; i <= OOM_MAX_HELD; i++)
		shared[i] = tensor(t);
	oom_node(t, OOM_NODE_CKPT, "checkpoint");       /* of a layer that takes them all */
	for (int i = 0; i < OOM_MAX_HELD; i++)
		oom_drop_shared(t, shared[i]);
	assert_int_equal(t->status, OOM_OK);
	assert_int_equal(t->n_held, OOM_MAX_HELD);
	oom_drop_shared(t, shared[OOM_MAX_HELD]);
	assert_int_equal(t->n_held, OOM_MAX_HELD);
	limit(t, "share more than 192 tensors");
	plan.grad_ckpt = OOM_CKPT_NONE;
	drop(t);
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t layer, struct oom_val x)
{
	(void)ctx;
	(void)layer;
	return oom_share(t, x);
}

static void stacks(void **state)
{
	static const unsigned char large[OOM_CTX_BYTES + 1];
	const int told = 0;
	struct oom_tape *t = tape();
	struct oom_val x;
	size_t rep = 0;

	(void)state;
	for (int i = 0; i < OOM_MAX_CTX; i++)
		assert_non_null(oom_layer_ctx(t, large, OOM_CTX_BYTES));
	assert_null(oom_layer_ctx(t, large, 1));
	limit(t, "more than 64 stacks");
	assert_null(oom_layer_ctx(t, large, sizeof(large)));
	limit(t, "1024 bytes");

	x = tensor(t);
	for (uint32_t i = 0; i < OOM_MAX_RUNS; i++)
		x = oom_layer_alone(t, i, block, large, x);
	assert_int_equal(t->status, OOM_OK);
	t->grad = false;                        /* an evaluation lists none */
	x = oom_layer_alone(t, OOM_MAX_RUNS, block, large, x);
	assert_int_equal(t->status, OOM_OK);
	t->grad = true;
	x = oom_layer_alone(t, OOM_MAX_RUNS, block, large, x);
	assert_int_equal(t->n_layers, OOM_MAX_RUNS);
	limit(t, "more than 512 runs of unlike layers");

	for (uint32_t i = 0; i < OOM_MAX_RUNS; i++)
		assert_true(oom_tape_repeat(t, 2, &rep));
	assert_false(oom_tape_repeat(t, 2, &rep));
	assert_int_equal(rep, OOM_MAX_RUNS - 1);
	limit(t, "more than 512 repeated runs");

	x = oom_layers(t, OOM_MAX_STACK, NULL, block, &told, tensor(t));
	assert_int_equal(t->status, OOM_OK);
	assert_int_equal(t->layers[1].reps, OOM_MAX_STACK - 2);
	x = oom_layers(t, OOM_MAX_STACK + 1, NULL, block, &told, x);
	limit(t, "65536 layers: more than 65535");
	t->expand = true;
	oom_layers(t, OOM_MAX_EXPANDED + 1, NULL, block, &told, tensor(t));
	t->expand = false;
	limit(t, "2001 layers: more than 2000");
	drop(t);
}

static void rows(void **state)
{
	struct oom_tape *t = tape();

	(void)state;
	t->n_rows = OOM_MAX_ROWS;
	assert_int_equal(tensor(t).sto, -1);
	limit(t, "more than 2^29 tensors");
	drop(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failures), cmocka_unit_test(nodes), cmocka_unit_test(names),
		cmocka_unit_test(held), cmocka_unit_test(stacks), cmocka_unit_test(rows)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
