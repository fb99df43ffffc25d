/* A Llama of two layers, small enough to add up by hand, and plans for it in words. */
#ifndef TINY_LLAMA_H
#define TINY_LLAMA_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "oomplan/rules.h"
#include "priced.h"
#include "knobs.h"

/* Two layers of Llama: vocabulary V, width H; N parameters:
 * V H + 2 (2 H H + 2 H 64 + 3 H 512 + 2 H) + H with four heads of 64 and one of keys. */
#define V UINT64_C(50000)
#define H UINT64_C(256)
#define N (V * H + 2 * (2 * H * H + 2 * H * 64 + 3 * H * 512 + 2 * H) + H)
#define LLAMA \
	"{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, " \
	"\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 1, " \
	"\"head_dim\": 64, \"vocab_size\": 50000, \"tie_word_embeddings\": true}"
/* sequences of a micro-batch, tokens of each */
#define B UINT64_C(4)
#define S UINT64_C(512)

static inline struct oom_plan plan_of(const char *words)
{
	struct oom_plan p = oom_plan_default();

	set(&p, "micro-batch=4 seq-len=512");
	set(&p, words);
	return p;
}

static inline struct oom_eval of(const char *words)
{
	const struct oom_plan p = plan_of(words);

	return must(LLAMA, &p);
}

/* a - b, which is `expected` but for some small tensors of a number per token */
static inline void about(uint64_t a, uint64_t b, uint64_t expected, const char *what)
{
	const uint64_t d = a - b, slack = 64 * 2 * B * S;

	if (d > expected + slack || d + slack < expected)
		fail_msg("%s: %llu more, expected %llu", what, (unsigned long long)d,
			 (unsigned long long)expected);
}

#endif
