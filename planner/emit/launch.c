/* Launch lines, batch scripts, tasks of clouds. */
#include <stdio.h>
#include <string.h>

#include "ladder/allocator_variable.h"
#include "emit/fills.h"

/* ---- launching ---- */

static int64_t each_node(const struct emission *e)
{
	return e->plan->nodes > 0 ? e->plan->gpus / e->plan->nodes : e->plan->gpus;
}

/* meet: how the processes of several nodes find each other. */
static void launch_line(struct emission *e, struct emit_text *out, const char *meet)
{
	if (emit_is(e, "allocator", "expandable_segments"))
		emit_put(out, OOM_ALLOCATOR_EXPANDABLE " ");
	emit_put(out, "torchrun --nnodes %lld --nproc_per_node %lld %s%s%s ", (long long)e->plan->nodes,
		 (long long)each_node(e), e->plan->nodes > 1 ? meet : "",
		 trl_command(e) ? "-m trl.scripts." : "train.py", trl_command(e) ? trl_command(e) : "");
	emit_options(e, out);
}

void write_torchrun(struct emission *e, struct emit_text *out)
{
	launch_line(e, out, EMIT_MEETS);
}

void write_slurm(struct emission *e, struct emit_text *out)
{
	char each[24];

	snprintf(each, sizeof(each), "%lld", (long long)each_node(e));
	emit_put(out,
		 "#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH --nodes=%lld\n#SBATCH --ntasks-per-node=1\n"
		 "#SBATCH --gpus-per-node=%s\n#SBATCH --cpus-per-task=%lld\n\n"
		 "head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n",
		 (long long)e->plan->nodes, each, (long long)(each_node(e) * (e->plan->dataloader_workers + 2)));
	if (emit_is(e, "allocator", "expandable_segments"))
		emit_put(out, "export " OOM_ALLOCATOR_EXPANDABLE "\n");
	emit_put(out, "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node %s --rdzv_backend c10d "
		      "--rdzv_endpoint $head:29500 %s%s ", each, trl_command(e) ? "-m trl.scripts." : "train.py", trl_command(e) ? trl_command(e) : "");
	emit_options(e, out);
}

/* A command inside YAML's "|": its lines indented. */
static void indented(struct emit_text *out, const char *text)
{
	for (const char *p = text; *p;) {
		const size_t n = strcspn(p, "\n");

		emit_put(out, "  %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
}

/* Who the first node is: docs.skypilot.co running-jobs/distributed-jobs; dstack's
 * examples/distributed-training/torchrun/.dstack.yml. */
static const char sky_meets[] = "--node_rank $SKYPILOT_NODE_RANK --master_addr $(echo \"$SKYPILOT_NODE_IPS\" | head -n 1) "
				"--master_port 29500 ",
		  dstack_meets[] = "--node_rank $DSTACK_NODE_RANK --master_addr $DSTACK_MASTER_NODE_IP --master_port 29500 ";

static void task(struct emission *e, struct emit_text *out, bool sky)
{
	struct emit_text line = {.text = NULL};
	char card[80];

	launch_line(e, &line, sky ? sky_meets : dstack_meets);
	if (sky) {
		emit_put(out, "name: train\nresources:\n  accelerators: %s:%lld\nnum_nodes: %lld\n",
			 e->gpu ? oom_gpu_listed(e->gpu, true, card) : "GPU", (long long)each_node(e),
			 (long long)e->plan->nodes);
	} else {
		emit_put(out, "type: task\nname: train\n");
		if (e->plan->nodes > 1)
			emit_put(out, "nodes: %lld\n", (long long)e->plan->nodes);
		emit_put(out, "resources:\n  gpu:\n");
		if (e->gpu)
			emit_put(out, "    name: %s\n    memory: %.0fGB\n",
				 oom_gpu_listed(e->gpu, false, card), e->gpu->memory_gb);
		emit_put(out, "    count: %lld\n", (long long)each_node(e));
	}
	if (emit_is(e, "allocator", "expandable_segments"))
		emit_put(out, sky ? "envs:\n  " OOM_ALLOCATOR_VARIABLE ": " OOM_EXPANDABLE "\n"
				  : "env:\n  - " OOM_ALLOCATOR_EXPANDABLE "\n");
	emit_put(out, sky ? "run: |\n" : "commands:\n  - |\n");
	out->failed |= line.failed;
	if (line.text && sky)
		indented(out, line.text);
	for (const char *p = line.text; !sky && p && *p;) {
		const size_t n = strcspn(p, "\n");

		emit_put(out, "    %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
	emit_text_release(&line);
}

void write_skypilot(struct emission *e, struct emit_text *out)
{
	task(e, out, true);
}

void write_dstack(struct emission *e, struct emit_text *out)
{
	task(e, out, false);
}
