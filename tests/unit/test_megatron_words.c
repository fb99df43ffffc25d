/* Megatron-LM's arguments describe a model but for the words of its tokenizer, which a name may tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "frameworks/parts.h"
#include "oomplan/reading.h"

#define ARGUMENTS "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 " \
	"--swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope --bf16 --micro-batch-size 1 " \
	"--seq-length 128 --max-position-embeddings 128 "

/* len(AutoTokenizer.from_pretrained(name)) of each, as its tokenizer.json has it; megatron's own default for TikTokenizer. */
static const struct {
	const char *options;
	const char *words;      /* NULL: nobody knows */
} runs[] = {
	{"--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-0.6B", "151669"},
	{"--tokenizer-type HuggingFaceTokenizer --tokenizer-model /models/Qwen2.5-7B-Instruct/", "151665"},
	{"--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B", "128256"},
	{"--tokenizer-type HuggingFaceTokenizer --tokenizer-model mistralai/Mistral-7B-v0.3", "32768"},
	{"--tokenizer-type HuggingFaceTokenizer --tokenizer-model mistralai/Mistral-7B-v0.1", "32000"},
	{"--tokenizer-type TikTokenizer --tokenizer-model some.vocab.json", "131072"},
	{"--tokenizer-type Llama2Tokenizer --tokenizer-model tokenizer.model", "32000"},
	{"--tokenizer-type HuggingFaceTokenizer --tokenizer-model some-org/Own-1B", NULL},
	{"--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-0.6B --vocab-size 99", "99"},
};

static void test_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		struct oom_error err = {{0}};
		struct oom_reading *r = NULL;
		char text[700], member[60];
		const char *config, *why;

		snprintf(text, sizeof(text), "%s%s\n", ARGUMENTS, runs[i].options);
		if (oom_reading_of_text(&r, "a.sh", text, strlen(text), NULL, &err))
			fail_msg("%s", err.text);
		config = oom_reading_config(r, &why);
		snprintf(member, sizeof(member), "\"vocab_size\": %s,", runs[i].words ? runs[i].words : "");
		if (!runs[i].words)
			assert_null(config);
		else if (!config || !strstr(config, member))
			fail_msg("%s: %s %s", runs[i].options, config ? config : "no config", why ? why : "");
		oom_reading_free(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_words)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
