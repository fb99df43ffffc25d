/* Models part by part: what each module of a small model holds, against its published architecture.
 *
 * A row is a config and every module that owns parameters, each with a formula over the config's sizes.  The names and
 * shapes are those that named_parameters() of transformers 5.12.1 gives for a model of this config, built on the meta
 * device (PyTorch 2.14; tests/tools/measured/model_parts.py prints them); the formulas restate the shapes in the config's
 * words, and no number comes from oomplan.
 *
 * Of each row it is tested that the parts add up to the model; that training a part by its name alone trains exactly
 * its elements and leaves gradients of four bytes for each in fp32; and that freezing it leaves exactly the rest. */
#ifndef OOM_TESTS_PARTS_CASE_H
#define OOM_TESTS_PARTS_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/plan.h"

/* Vocabulary, width, feed-forward, layers, heads, all key-value heads together, a head's width, positions; experts and
 * the width of one.  Chosen so that no two of them, and no sums and multiples that models use, are alike. */
enum { V = 1000, H = 96, F = 208, L = 3, A = 6, KVH = 32, HEAD = 16, P = 512, E = 5, W = 40 };
/* nn.Linear with a bias, and the convolution of one by one that is the same */
#define LIN(in, out) ((in) * (out) + (out))

/* Of configs: the sizes above under the names that most types give them; with two key-value heads; with a head's
 * width said, where the type's own default is another. */
#define SIZES                                                                                   \
	"\"vocab_size\":1000,\"hidden_size\":96,\"intermediate_size\":208,\"num_hidden_layers\":3,"  \
	"\"num_attention_heads\":6,\"max_position_embeddings\":512,\"pad_token_id\":0"
#define GROUPED SIZES ",\"num_key_value_heads\":2"
#define HEADED GROUPED ",\"head_dim\":16"
#define GPT2 "\"vocab_size\":1000,\"n_embd\":96,\"n_layer\":3,\"n_head\":6,\"n_positions\":512"
#define TIED ",\"tie_word_embeddings\":true"
#define UNTIED ",\"tie_word_embeddings\":false"

/* Before a name: the model itself never trains it (requires_grad=False); it trains, but the loss does not reach it, so
 * that it has no gradient (a real step of the same model on the CPU left .grad None). */
#define STILL "!"
#define IDLE "~"
struct part {
	/* as --train and --freeze take it; it is found in no other part's names */
	const char *name;
	uint64_t elems;
};
enum { MAX_PARTS = 64 };
struct model_parts {
	const char *type, *keys;
	enum oom_task task;
	struct part part[MAX_PARTS];
};

/* Freezing by that name warns that names are guesses. */
bool parts_guessed(const char *json, enum oom_task task, const char *freeze);
/* Fails after the last row when any was wrong, having said which. */
void parts_check(const struct model_parts *rows, size_t n);
#define PARTS_TEST(rows)                                                                        \
	static void test_##rows(void **state)                                                   \
	{                                                                                       \
		(void)state;                                                                    \
		parts_check(rows, sizeof(rows) / sizeof((rows)[0]));                            \
	}

#endif
