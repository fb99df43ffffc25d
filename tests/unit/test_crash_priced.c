/* The run that a crash's text gives, priced: which lines are read, which model they mean, what is in the way, what fits. Texts
 * of our own in the form of public threads (named per row); numbers are sums beside them: bytes of weights and states are
 * parameters x bytes, logits tokens x words of the vocabulary x 4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "input/model_spoken.h"
#include "oomplan/priced.h"

#define NEW(tried, total, free, held) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of " total " of which " free \
				      " is free. Of the allocated memory " held " is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"

struct want {
	const char *after, *text;
	const char *given, *needs;      /* "": it is not priced */
	const char *change, *explains;  /* NULL: not asked; "": there is none */
	const char *reason;
};

static const struct want want[] = {
	{"axolotl#1641", "Llama 3 8b OOM on two A100s\n```yaml\nbase_model: meta-llama/Llama-3.1-8B\nsequence_len: 8192\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\noptimizer: adamw_bnb_8bit\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nbf16: true\ngradient_checkpointing: true\nflash_attention: true\n```\n" NEW("7.83 GiB", "39.39 GiB", "5.19 GiB", "32.62 GiB"),
	 "lines 3 to 13 of the text, as axolotl reads them", "logits and loss", "liger", "", "2 x 8192 x 128256 x 4 bytes are 7.83 GiB, kept several times: it is the loss that is changed, not the engine"},
	{"stanford_alpaca#189", "torchrun --nproc_per_node=1 train7b.py --model_name_or_path ./own/llama-7b --data_path ./d.json --bf16 True --per_device_train_batch_size 1 --gradient_accumulation_steps 8 --fsdp \"full_shard auto_wrap\"\nin training\n" NEW("774.00 MiB", "79.15 GiB", "91.50 MiB", "77.96 GiB"),
	 "line 1 of the text, as hf-trainer reads it: ./own/llama-7b (Llama-7B)", "weights (25.1), gradients (25.6) and optimizer states (50.2) of 6.74 B", "optim: ", "", "6.738e9 x 4, 4 and 8 bytes / 2^30, and the head's gradient in 16 bits; one process divides nothing"},
	{"LlamaFactory#8471", "two A100\n### model\nmodel_name_or_path: Models/qwen3-8b\n### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\n### dataset\ncutoff_len: 20480\n### train\nper_device_train_batch_size: 1\nbf16: true\n\n" NEW("10.15 GiB", "39.59 GiB", "5.06 GiB", "32.74 GiB"),
	 "Models/qwen3-8b (Qwen3-8B)", "logits and loss", "enable_liger_kernel: true", "", "20480 x 151936 x 4 bytes are 11.6 GiB, three times"},
	{"LlamaFactory#4026", "args = dict(\n  stage=\"sft\",\n  do_train=True,\n  model_name_or_path=\"llama3 8B\",\n  finetuning_type=\"lora\",\n  per_device_train_batch_size=2,\n  fp16=True,\n  cutoff_len=8192,\n)\n" NEW("7.83 GiB", "39.39 GiB", "2.31 GiB", "35.58 GiB"),
	 "llama3 8B (Llama-3-8B)", "logits and loss", "enable_liger_kernel: true", "", "arguments one a line are keys"},
	{"own", "{\n  'model_name_or_path': 'own/Qwen3-8B-more',\n  'stage': 'sft', 'do_train': True,\n  'finetuning_type': 'lora',\n  'cutoff_len': 512,\n  'per_device_train_batch_size': 1,\n  'bf16': True\n}\n" NEW("2.00 GiB", "79.15 GiB", "1.00 GiB", "77.00 GiB"),
	 "own/Qwen3-8B-more (taken to have the shape of Qwen3-8B, whose name it begins with)", "of the card's 79.15", "", "its own tensors held 77.0 GiB already", "a dict as Python prints it; the run is a fourth of the card"},
	{"unsloth#2802", "model, tokenizer = FastLanguageModel.from_pretrained(\n    model_name = \"unsloth/Qwen3-8B-unsloth-bnb-4bit\",\n    max_seq_length = 2048,\n    load_in_4bit = True,\n)\nmodel = FastLanguageModel.get_peft_model(model, r = 16)\nargs = TrainingArguments(\n    per_device_train_batch_size=1,  # was 32\n    bf16=True,\n)\ntrainer = Trainer(model=model, args=args)\ntrainer.train()\n" NEW("1.00 GiB", "23.65 GiB", "0.50 GiB", "6.00 GiB"),
	 "(Qwen3-8B-unsloth-bnb-4bit)", "of the card's 23.65", "nvidia-smi", "of the card were held by others", "what is missing beside 6 GiB of its own is not its own"},
	{"own", "swift sft \\\n  --model Qwen/Qwen2.5-7B-Instruct \\\n  # --target_modules all-linear \\\n  --train_type lora \\\n  --per_device_train_batch_size 1 \\\n  --max_length 16384\nin training\n" NEW("9.28 GiB", "47.53 GiB", "9.07 GiB", "36.20 GiB"),
	 "lines 1 to 6 of the text, as ms-swift reads them", "logits and loss", "use_liger_kernel: true", "", "16384 x 152064 x 4 bytes are 9.28 GiB; a comment among options ends no command here"},
	{"own", "### model\nmodel_name_or_path: meta-llama/Llama-3.1-8B\n### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\nlora_target: q_proj\ncutoff_len: 64\nper_device_train_batch_size: 1\nbf16: true\n\n" NEW("112.00 MiB", "14.56 GiB", "5.19 MiB", "14.00 GiB"),
	 "meta-llama/Llama-3.1-8B", ": the weights of 8.03 B parameters are 15.0 GiB by themselves", NULL, NULL, "8.03e9 x 2 bytes / 2^30; frozen weights have neither gradients nor states"},
	/* ---- weights of what serves, in its own bits and among its cards ---- */
	{"huggingface/text-generation-inference#1374", "text-generation-launcher --model-id codellama/CodeLlama-34b-Instruct-hf --num-shard 1 --quantize eetq\n" NEW("42.00 MiB", "39.39 GiB", "31.00 MiB", "37.21 GiB"),
	 "CodeLlama-34B", "31.4 GiB in the 8 bits", "", NULL, "33.74e9 bytes / 2^30; the card holds them"},
	{"vllm-project/vllm-ascend#1987", "vllm serve own/GLM-4-32B-0414 -tp 2 --dtype bfloat16\n" NEW("3.47 GiB", "60.97 GiB", "1.66 GiB", "58.92 GiB"),
	 "GLM-4-32B-0414", "30.3 on each of 2 cards; the card holds 58.92 already: they were not divided", "why one card holds all of it", NULL, "32.57e9 x 2 bytes / 2 / 2^30"},
	/* ---- what stands in several places ---- */
	{"LlamaFactory#1722", "two cards of 24 G\ndeepspeed --num_gpus 2 src/train_bash.py \\\n    --deepspeed ds_config.json \\\n    --stage sft \\\n    --model_name_or_path own/Qwen2.5-14B-Instruct \\\n    --do_train True \\\n    --finetuning_type lora \\\n    --cutoff_len 512 \\\n    --per_device_train_batch_size 1 \\\n    --bf16 True\nds_config.json:\n{\n    \"train_micro_batch_size_per_gpu\":\"auto\",\n    \"zero_optimization\": {\n        \"stage\": 3,\n        \"stage3_gather_16bit_weights_on_model_save\": true\n    }\n}\n" NEW("1.45 GiB", "23.65 GiB", "1.02 GiB", "20.80 GiB"),
	 "lines 2 to 10 of the text and the file beside it, as llamafactory reads them", "weights 13.8", "zero_optimization.", NULL, "14.77e9 x 2 bytes / 2 ranks / 2^30: the stage is the other file's"},
	{"transformers#9090", "in a notebook, training\n!python run_clm.py \\\n    --model_name_or_path gpt2 \\\n    --dataset_name wikitext \\\n    --do_train\n" NEW("1.53 GiB", "14.76 GiB", "1.50 GiB", "11.78 GiB"),
	 "gpt2 (GPT-2)", "of the card's 14.76", "per_device_train_batch_size: ", "", "8 x 1024 x 50257 x 4 bytes are 1.53 GiB, by the script's own defaults"},
	{"torchtune#1694", "training on a 4090\ntune run lora_finetune_single_device --config llama3_1/8B_lora_single_device tokenizer.max_seq_len=2048 batch_size=2\n" NEW("1002.00 MiB", "23.53 GiB", "845.00 MiB", "21.70 GiB"),
	 "", "", "", "", "the recipe's file says what is trained, and the text does not have it"},
	{"qlora#17", "{'loss': 1.2}\nLLaMA-Factory, A800 80G\nmodel_name_or_path: own/Qwen2-7B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: lora\ncutoff_len: 32768\nper_device_train_batch_size: 1\nbf16: true\ntorch.OutOfMemoryError: CUDA out of memory.\n",
	 "(Qwen2-7B)", "of the card's 79", "enable_liger_kernel: true", "", "the card by its name; a line of an error is no key"},
	{"own", "from transformers import Trainer\nmodel = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen2.5-0.5B\")\nargs = TrainingArguments(\n    per_device_train_batch_size=4,\n    per_device_eval_batch_size=16,\n    bf16=True,\n)\n  File \"/x/site-packages/transformers/trainer.py\", line 3661, in evaluation_loop\n    logits = self.accelerator.pad_across_processes(logits)\n" NEW("9.27 GiB", "39.38 GiB", "7.10 GiB", "30.90 GiB"),
	 "(Qwen2.5-0.5B)", "of the card's 39.38", "", "", "an evaluation gathers what no step of the price makes: others are not accused"},
	{"own", "I train on 8xA100 80GB\npython train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 8 --bf16 --max_seq_length 4096\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB\n",
	 "GPUs 8", "of the card's 79.", NULL, NULL, "a card behind the number of cards"},
	{"own", "deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --micro_train_batch_size 2 --max_len 16384 --zero_stage 3 --bf16\nin training\n" NEW("7.83 GiB", "79.15 GiB", "1.00 GiB", "70.00 GiB"),
	 "(Llama-3.1-8B)", "optimizer states (89.7)", NULL, NULL, "8.03e9 x 12 bytes / 2^30: kernels are priced, for scores of 2 x 32 x 16384 x 16384 x 2 bytes in each of 32 layers are 1024 GiB"},
	/* ---- no training ---- */
	{"own", "model = AutoModelForCausalLM.from_pretrained(\n    \"meta-llama/Llama-3.1-8B-Instruct\"\n).to(\"cuda\")\nin inference\n" NEW("224.00 MiB", "15.77 GiB", "100.12 MiB", "15.30 GiB"),
	 "(Llama-3.1-8B)", "15.0 GiB in 16 bits, 29.9 in fp32", "", "", "8.03e9 x 2 and x 4 bytes / 2^30; nobody trains"},
	{"own", "model = AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-3.1-8B-Instruct\")\nin inference\n" NEW("224.00 MiB", "139.81 GiB", "100.12 MiB", "138.30 GiB"),
	 "", "", "", "", "15 GiB of 140 explain nothing"},
	{"own", "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 32768\n" NEW("2.00 GiB", "79.15 GiB", "1.00 GiB", "77.00 GiB"),
	 "", "", "", "", "a server has no step"},
	/* ---- what is not there ---- */
	{"own", "base_model: own/Model-9B\nsequence_len: 2048\nmicro_batch_size: 2\nadapter: lora\nin training\n" NEW("2.00 GiB", "23.65 GiB", "1.00 GiB", "22.00 GiB"),
	 "", "", "", "", "nobody knows the model"},
	{"own", "Training Qwen3-8B\n" NEW("2.00 GiB", "23.65 GiB", "1.00 GiB", "22.00 GiB"), "", "", "", "", "no keys: a name alone gives no run"},
};

static bool price(const char *text, struct oom_priced *out)
{
	struct oom_crash_text *const kept = calloc(1, sizeof(*kept));
	struct oom_crash c;
	struct oom_error err = {{0}};
	bool priced;

	assert_non_null(kept);
	assert_true(oom_crash_decode(text, strlen(text), &c));
	memcpy(kept->text[0], text, strlen(text));
	kept->size[0] = strlen(text);
	kept->line[0] = 1;
	priced = !oom_crash_price(kept, &c, out, &err);
	free(kept);
	return priced;
}

static int miss(const struct want *w, const char *what, const char *words, const char *has)
{
	if (!words || (*words ? strstr(has, words) != NULL : !*has))
		return 0;
	print_error("%s (%s): %s is \"%s\", not \"%s\"\n", w->after, w->reason, what, has, words);
	return 1;
}

static void texts(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_priced p;
		const bool priced = price(want[i].text, &p);

		if (!priced)
			memset(&p, 0, sizeof(p));
		bad += miss(&want[i], "the run", want[i].given, p.given) + miss(&want[i], "the price", want[i].needs, p.needs) +
		       miss(&want[i], "the change", want[i].change, p.n_changes ? p.change[0] : "") + miss(&want[i], "what would explain it", want[i].explains, p.explains);
		if (p.changed_bytes > p.capacity_bytes) {
			print_error("%s: a change that does not fit\n", want[i].after);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

/* Whether attention was written out, which nothing dates, the request decides: scores that no card holds nobody asked for. */
static void scores(void **state)
{
	static const struct {
		const char *tried, *attention;
	} rows[] = {{"7.83 GiB", "attention flash"}, {"32.00 GiB", "attention eager"}};   /* 2 x 32 x 16384 x 16384 x 2 bytes are 32 GiB */

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char text[600];
		struct oom_priced p;

		snprintf(text, sizeof(text), "deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --micro_train_batch_size 2 --max_len 16384 --zero_stage 3 --bf16\n"
			 "in training\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free.\n", rows[i].tried);
		assert_true(price(text, &p));
		assert_non_null(strstr(p.assumed, rows[i].attention));
		assert_int_equal(p.n_notes, 1);
		assert_int_equal(strncmp(p.note[0], "attn: nothing dates the command", 31), 0);
	}
}

/* Beside a change that fits, what frees less than is missing is no advice; the price has the parts. */
static void idle(void **state)
{
	static const char text[] = "### model\nmodel_name_or_path: Models/qwen3-8b\n### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\n### dataset\ncutoff_len: 20480\n### train\n"
				   "per_device_train_batch_size: 1\nbf16: true\nin training\n"
				   "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 11.59 GiB. GPU 0 has a total capacity of 39.39 GiB of which 1.00 GiB is free.\n";
	struct oom_crash c;
	struct oom_crash_answer a;
	struct oom_priced p;
	bool length = false;

	(void)state;
	assert_true(price(text, &p));
	assert_true(oom_crash_decode(text, strlen(text), &c));
	oom_priced_settle(&p, &c);
	oom_crash_answer(&c, &a);
	/* 15.3 GiB of weights, in 4 bits or divided, are less than the 20480 x 151936 x 4 bytes that are there three times */
	for (size_t i = 0; i < a.n_fix; i++) {
		assert_null(strstr(a.fix[i], "quantization_bit"));
		assert_null(strstr(a.fix[i], "ZeRO-3"));
		length |= strstr(a.fix[i], "cutoff_len 20480 -> 10240") != NULL;
	}
	assert_true(length);
}

/* The largest parts are named though two are of one size: weights and gradients in 16 bits. */
static void equals(void **state)
{
	struct oom_priced p;

	(void)state;
	assert_true(price("base_model: meta-llama/Llama-3.1-8B\nsequence_len: 128\nmicro_batch_size: 1\noptimizer: sgd\nbf16: true\nflash_attention: true\nin training\n" NEW("2.00 GiB", "79.15 GiB", "1.00 GiB", "77.00 GiB"), &p));
	assert_non_null(strstr(p.needs, "weights 15.0"));
	assert_non_null(strstr(p.needs, "gradients 15.0"));
}

/* What the keys say settles what the words around the message guess. */
static void settled(void **state)
{
	static const char text[] = "the same with LLaMA-Factory runs\nswift sft \\\n  --model Qwen/Qwen2.5-7B-Instruct \\\n  --train_type lora \\\n  --per_device_train_batch_size 1 \\\n  --max_length 16384\n"
				   NEW("9.28 GiB", "47.53 GiB", "5.07 GiB", "40.20 GiB");
	struct oom_crash_answer a;
	struct oom_crash c;
	struct oom_priced p;

	(void)state;
	assert_true(price(text, &p));
	assert_true(oom_crash_decode(text, strlen(text), &c));
	oom_priced_settle(&p, &c);
	assert_true(c.priced);
	oom_crash_answer(&c, &a);
	assert_string_equal(a.title, "ms-swift");
	/* its default, which a text need not say (ms-swift swift/llm/argument/train_args.py, gradient_checkpointing) */
	for (size_t i = 0; i < a.n_fix; i++)
		assert_null(strstr(a.fix[i], "gradient_checkpointing"));
}

static void names(void **state)
{
	static const struct {
		const char *name, *bundled;     /* NULL: none */
		bool alike;
	} rows[] = {
		{"../../llama/llama-2-7b-hf", "Llama-2-7B", false}, {"LLaMA 7B", "Llama-7B", false}, {"Qwen.Qwen2.5-7B-Instruct", "Qwen2.5-7B", false},
		{"/models/qwen3-8b/", "Qwen3-8B", false}, {"llama3 8B", "Llama-3-8B", false}, {"own/Llama-3.1-8B-Omni", "Llama-3.1-8B", true},
		/* a name that goes on with a digit, that is a part of another, or that has no size is another model's */
		{"llama-2-70b-hf", "Llama-2-70B", false}, {"my_llama_7b", NULL, false}, {"own-CodeLlama-7b-hf", NULL, false}, {"gpt2-own", NULL, false}, {"7b", NULL, false},
	};

	struct oom_spoken_models models = {0};

	(void)state;
	oom_spoken_load(&models);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oom_model_spoken m;
		const bool found = oom_model_spoken(&models, rows[i].name, strlen(rows[i].name), &m);

		if (!rows[i].bundled) {
			assert_false(found);
			continue;
		}
		assert_true(found);
		assert_string_equal(m.bundled, rows[i].bundled);
		assert_int_equal(m.alike, rows[i].alike);
	}
	oom_spoken_release(&models);
}

/* A log that is longer than what is kept: its beginning and what stands around the message. */
static void long_log(void **state)
{
	char path[] = "/tmp/oomplan-priced-XXXXXX";
	const int fd = mkstemp(path);
	FILE *const f = fd < 0 ? NULL : fdopen(fd, "w");
	struct oom_crash_text *const kept = malloc(sizeof(*kept));
	struct oom_crash_log log;
	struct oom_crash c;
	struct oom_priced p;
	struct oom_error err = {{0}};

	(void)state;
	assert_non_null(f);
	assert_non_null(kept);
	fputs("swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora --per_device_train_batch_size 1 --max_length 16384\n", f);
	for (int i = 0; i < 60000; i++)
		fprintf(f, "{'loss': 1.0, 'global_step/max_steps': '%d/100000'}\n", i);
	fputs(NEW("9.28 GiB", "47.53 GiB", "5.07 GiB", "40.20 GiB"), f);
	fclose(f);
	assert_int_equal(oom_crash_read_keeping(path, NULL, NULL, &c, &log, kept, &err), OOM_OK);
	remove(path);
	assert_true(kept->size[0] > 0 && kept->size[1] > 0);
	assert_true(kept->line[1] > 50000 && kept->line[1] < c.line);
	assert_int_equal(oom_crash_price(kept, &c, &p, &err), OOM_OK);
	assert_non_null(strstr(p.given, "line 1 of the text, as ms-swift reads it"));
	free(kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(settled), cmocka_unit_test(scores), cmocka_unit_test(idle), cmocka_unit_test(equals), cmocka_unit_test(names), cmocka_unit_test(long_log)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
