/* oomplan record: code that writes a row of a runs file from a real run. */
#include <string.h>

#include "commands.h"

struct recorder {
	const char *name, *code;
};

/* The row that all of them write: what the program's own readers call the columns. */
#define WRITE \
	"def oomplan_row(path, **row):\n" \
	"    free, total = torch.cuda.mem_get_info()\n" \
	"    row |= dict(torch=torch.__version__.split(\"+\")[0], allocated=torch.cuda.max_memory_allocated(),\n" \
	"                reserved=torch.cuda.max_memory_reserved(), nvidia_smi=total - free)\n" \
	"    new = not os.path.exists(path)\n" \
	"    with open(path, \"a\", newline=\"\") as f:\n" \
	"        w = csv.DictWriter(f, row)\n" \
	"        new and w.writeheader()\n" \
	"        w.writerow(row)\n"

static const struct recorder recorders[] = {
	{"trainer",
	 "import csv, os, torch, transformers\n\n" WRITE "\n"
	 "class Record(transformers.TrainerCallback):\n"
	 "    \"\"\"trainer.add_callback(Record(\"runs.csv\", model=\"config.json\", seq_len=1024, precision=\"amp-bf16\"))\"\"\"\n"
	 "    def __init__(self, path, **knobs):\n"
	 "        self.path, self.knobs = path, knobs\n"
	 "    def on_step_end(self, args, state, control, **kw):\n"
	 "        if state.global_step == 3 and state.is_world_process_zero:\n"
	 "            oomplan_row(self.path, **{**dict(micro_batch=args.per_device_train_batch_size, gpus=args.world_size,\n"
	 "                        grad_accum=args.gradient_accumulation_steps, optimizer=args.optim.value if hasattr(args.optim, \"value\") else args.optim,\n"
	 "                        grad_ckpt=\"full\" if args.gradient_checkpointing else \"none\", transformers=transformers.__version__), **self.knobs})\n"},
	{"lightning",
	 "import csv, os, torch, lightning\n\n" WRITE "\n"
	 "class Record(lightning.Callback):\n"
	 "    \"\"\"Trainer(callbacks=[Record(\"runs.csv\", model=\"config.json\", micro_batch=4, seq_len=1024, precision=\"amp-bf16\")])\"\"\"\n"
	 "    def __init__(self, path, **knobs):\n"
	 "        self.path, self.knobs = path, knobs\n"
	 "    def on_train_batch_end(self, trainer, module, outputs, batch, index):\n"
	 "        if index == 3 * trainer.accumulate_grad_batches and trainer.is_global_zero:\n"
	 "            oomplan_row(self.path, **{**dict(gpus=trainer.world_size, grad_accum=trainer.accumulate_grad_batches), **self.knobs})\n"},
	{"loop",
	 "import csv, os, torch\n\n" WRITE "\n"
	 "# after the third optimizer step, on rank 0:\n"
	 "# oomplan_row(\"runs.csv\", model=\"config.json\", micro_batch=4, seq_len=1024, precision=\"amp-bf16\", optimizer=\"adamw\", gpus=1)\n"},
};

static const char *recorder_name(size_t i)
{
	return i < sizeof(recorders) / sizeof(recorders[0]) ? recorders[i].name : NULL;
}

static int run(struct oom_job *job)
{
	const char *word = job->words.n ? job->words.items[0] : recorders[0].name;
	size_t i = 0;

	while (recorder_name(i) && strcmp(recorder_name(i), word))
		i++;
	if (!recorder_name(i))
		return OOM_EXIT_USAGE;
	fputs("# Writes a row of a runs file for: oomplan estimate --runs runs.csv, oomplan calibrate runs.csv.\n"
	      "# Columns are knobs (oomplan list knobs); give those it cannot know. Evaluations before the third\n"
	      "# step, a second model on the card or another process are in what it measures.\n", stdout);
	fputs(recorders[i].code, stdout);
	return OOM_EXIT_FITS;
}

static const struct oom_option options[] = {OOM_OPTIONS_COMMON, OOM_OPTIONS_END};
static const struct oom_example examples[] = {
	{"record trainer > record.py", "a callback of transformers' Trainer"},
	{NULL, NULL},
};
const struct oom_command oom_command_record = {
	.name = "record",
	.summary = "code that writes a row of a runs file from a real run: trainer, lightning, loop",
	.synopsis = "[WHAT]",
	.options = options,
	.words = "WHAT",
	.max_words = 1,
	.word = recorder_name,
	.examples = examples,
	.args_size = sizeof(struct oom_job),
	.run = run,
};
