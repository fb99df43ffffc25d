/* What a model works on, by the words in the names of files, functions and options around the message: "num_envs",
 * "edge_index", "waveform", "SRResNet.forward(img)". It decides nothing about the cause: only in which words it is said
 * what to make smaller. */
#include <string.h>

#include "tables.h"

enum { WORD = 16 };
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* "=": the whole word, otherwise its beginning; in lower case. */
static const struct {
	const char *word;
	enum oom_crash_task task;
} words[] = {
	{"=atom", OOM_TASK_ATOMS}, {"=atoms", OOM_TASK_ATOMS}, {"molec", OOM_TASK_ATOMS}, {"protein", OOM_TASK_ATOMS}, {"residue", OOM_TASK_ATOMS},
	{"=msa", OOM_TASK_ATOMS}, {"ligand", OOM_TASK_ATOMS}, {"lammps", OOM_TASK_ATOMS}, {"openmm", OOM_TASK_ATOMS}, {"=mace", OOM_TASK_ATOMS},
	{"interatomic", OOM_TASK_ATOMS}, {"chgnet", OOM_TASK_ATOMS}, {"nequip", OOM_TASK_ATOMS}, {"fairchem", OOM_TASK_ATOMS},
	{"forcefield", OOM_TASK_ATOMS},
	{"graph", OOM_TASK_GRAPHS}, {"=gnn", OOM_TASK_GRAPHS}, {"=gcn", OOM_TASK_GRAPHS}, {"=gat", OOM_TASK_GRAPHS}, {"=adj", OOM_TASK_GRAPHS},
	{"adjacency", OOM_TASK_GRAPHS}, {"=edges", OOM_TASK_GRAPHS}, {"=edge", OOM_TASK_GRAPHS}, {"=nodes", OOM_TASK_GRAPHS}, {"graphsage", OOM_TASK_GRAPHS}, {"pygcn", OOM_TASK_GRAPHS}, {"torch_geometric", OOM_TASK_GRAPHS}, {"geometric", OOM_TASK_GRAPHS}, {"=ogb", OOM_TASK_GRAPHS}, {"pygat", OOM_TASK_GRAPHS},
	{"gym", OOM_TASK_AGENTS}, {"=ppo", OOM_TASK_AGENTS}, {"=rl", OOM_TASK_AGENTS}, {"maniskill", OOM_TASK_AGENTS}, {"isaac", OOM_TASK_AGENTS}, {"replay", OOM_TASK_AGENTS},
	{"=agent", OOM_TASK_AGENTS}, {"=agents", OOM_TASK_AGENTS}, {"mujoco", OOM_TASK_AGENTS}, {"legged", OOM_TASK_AGENTS}, {"=dqn", OOM_TASK_AGENTS},
	{"=sac", OOM_TASK_AGENTS}, {"dreamer", OOM_TASK_AGENTS},
	{"audio", OOM_TASK_AUDIO}, {"waveform", OOM_TASK_AUDIO}, {"=wav", OOM_TASK_AUDIO}, {"=wavs", OOM_TASK_AUDIO}, {"=mel", OOM_TASK_AUDIO},
	{"=mels", OOM_TASK_AUDIO}, {"spectrogram", OOM_TASK_AUDIO}, {"speech", OOM_TASK_AUDIO}, {"=asr", OOM_TASK_AUDIO}, {"=tts", OOM_TASK_AUDIO},
	{"vocoder", OOM_TASK_AUDIO}, {"speaker", OOM_TASK_AUDIO}, {"hifigan", OOM_TASK_AUDIO}, {"voice", OOM_TASK_AUDIO}, {"conformer", OOM_TASK_AUDIO},
	{"demucs", OOM_TASK_AUDIO}, {"hubert", OOM_TASK_AUDIO}, {"=music", OOM_TASK_AUDIO},
	{"=avi", OOM_TASK_VIDEO}, {"=mov", OOM_TASK_VIDEO}, {"video", OOM_TASK_VIDEO}, {"=frames", OOM_TASK_VIDEO}, {"=clips", OOM_TASK_VIDEO}, {"optical", OOM_TASK_VIDEO},
	{"volume", OOM_TASK_VOLUMES}, {"=ct", OOM_TASK_VOLUMES}, {"=mri", OOM_TASK_VOLUMES}, {"brats", OOM_TASK_VOLUMES}, {"nifti", OOM_TASK_VOLUMES},
	{"unetr", OOM_TASK_VOLUMES},
	{"pointcl", OOM_TASK_POINTS}, {"pointnet", OOM_TASK_POINTS}, {"=cloud", OOM_TASK_POINTS}, {"=clouds", OOM_TASK_POINTS}, {"pointcept", OOM_TASK_POINTS}, {"lidar", OOM_TASK_POINTS}, {"voxel", OOM_TASK_POINTS},
	{"scannet", OOM_TASK_POINTS}, {"openpoints", OOM_TASK_POINTS}, {"minkowski", OOM_TASK_POINTS},
	{"image", OOM_TASK_IMAGES}, {"=img", OOM_TASK_IMAGES}, {"=imgs", OOM_TASK_IMAGES}, {"pixel", OOM_TASK_IMAGES}, {"=conv", OOM_TASK_IMAGES}, {"convolution", OOM_TASK_IMAGES}, {"convnext", OOM_TASK_IMAGES}, {"deconv", OOM_TASK_IMAGES},
	{"unet", OOM_TASK_IMAGES}, {"resnet", OOM_TASK_IMAGES}, {"=vgg", OOM_TASK_IMAGES}, {"backbone", OOM_TASK_IMAGES}, {"segment", OOM_TASK_IMAGES},
	{"=detect", OOM_TASK_IMAGES}, {"detector", OOM_TASK_IMAGES}, {"detection", OOM_TASK_IMAGES}, {"detectron", OOM_TASK_IMAGES}, {"yolo", OOM_TASK_IMAGES}, {"=bbox", OOM_TASK_IMAGES}, {"=roi", OOM_TASK_IMAGES}, {"upsampl", OOM_TASK_IMAGES},
	{"interpolate", OOM_TASK_IMAGES}, {"stereo", OOM_TASK_IMAGES}, {"disparity", OOM_TASK_IMAGES}, {"discriminator", OOM_TASK_IMAGES},
	{"esrgan", OOM_TASK_IMAGES}, {"restoration", OOM_TASK_IMAGES}, {"restormer", OOM_TASK_IMAGES}, {"deblur", OOM_TASK_IMAGES}, {"matting", OOM_TASK_IMAGES}, {"=vit", OOM_TASK_IMAGES},
	{"swin", OOM_TASK_IMAGES}, {"=depth", OOM_TASK_IMAGES}, {"=png", OOM_TASK_IMAGES}, {"=jpg", OOM_TASK_IMAGES}, {"photo", OOM_TASK_IMAGES}, {"picture", OOM_TASK_IMAGES},
	{"=face", OOM_TASK_IMAGES}, {"resolution", OOM_TASK_IMAGES}, {"camera", OOM_TASK_IMAGES}, {"batchnorm", OOM_TASK_IMAGES},
};

static bool letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

/* The next word at p: letters, up to a hump; in lower case. */
static const char *next_word(const char *p, const char *end, char *word, size_t *length)
{
	size_t n = 0;

	while (p < end && !letter(*p))
		p++;
	while (p < end && letter(*p) && !(n && upper(*p) && !upper(p[-1]))) {
		if (n + 1 < WORD)
			word[n++] = (char)(upper(*p) ? *p - 'A' + 'a' : *p);
		p++;
	}
	word[n] = 0;
	*length = n;
	return p;
}

static bool is(const char *word, const char *row)
{
	return *row == '=' ? !strcmp(word, row + 1) : !strncmp(word, row, strlen(row));
}

/* "create_graph=True", a captured "cuda_graph" and the allocator's "expandable_segments" are no data of anybody's. */
static bool of_torch(const char *from, const char *word)
{
	static const char *const before[] = {"create_", "retain_", "cuda_", "expandable_", "num_", "num-", "n_", "n"};

	for (size_t i = 0; i < COUNT(before); i++) {
		const size_t n = strlen(before[i]);

		if ((size_t)(word - from) >= n && !memcmp(word - n, before[i], n))
			return true;
	}
	return false;
}

/* "it frees the graph", as people write of autograd's: no name of theirs. */
static bool in_prose(const char *from, const char *word, const char *after, const char *to)
{
	return word > from && word[-1] == ' ' && (after == to || strchr(" .,;:)\n", *after));
}

/* Each row once: a name that every frame repeats says no more than one that stands there once. */
static void read_words(const char *from, const char *to, uint64_t seen[2])
{
	char word[WORD];
	size_t n;

	for (const char *p = from; p < to;) {
		p = next_word(p, to, word, &n);
		/* a graphics card is no graph */
		if (((!strcmp(word, "graph") || !strcmp(word, "segments") || !strcmp(word, "nodes")) && of_torch(from, p - n)) || (!strcmp(word, "graph") && in_prose(from, p - n, p, to)) ||
		    !strncmp(word, "graphic", 7))
			continue;
		for (size_t i = 0; n > 1 && i < COUNT(words); i++)
			if (is(word, words[i].word))
				seen[i / 64] |= UINT64_C(1) << (i % 64);
	}
}

/* Not what lies in PyTorch, which has folders of everybody's words. */
static bool is_torch(const char *line, const char *stop)
{
	return oom_text_find(line, stop, "/torch/") || oom_text_find(line, stop, "\\torch\\");
}

/* The most rows; of as many the one that stands first in the table, which is the rarer. */
void oom_decode_task(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *const message = oom_line_begin(begin, at), *const from = message - begin > 6000 ? message - 6000 : begin,
			 *const to = end - message > 1000 ? message + 1000 : end;
	uint64_t seen[2] = {0, 0};
	int hits[OOM_TASKS] = {0};

	static_assert(COUNT(words) <= 128, "a bit for each");
	c->task = OOM_TASK_UNKNOWN;
	for (const char *p = from; p < to;) {
		const char *const stop = oom_line_end(p, to);

		const bool theirs = is_torch(p, stop);

		if (p != message && !theirs)
			read_words(p, stop, seen);
		p = stop < to ? stop + 1 : to;
		/* nor the line of code below such a frame: "retain_graph" is no graph */
		if (theirs && p < to && p != message && *p == ' ')
			p = oom_line_end(p, to) < to ? oom_line_end(p, to) + 1 : to;
	}
	for (size_t i = 0; i < COUNT(words); i++)
		hits[words[i].task] += (seen[i / 64] >> (i % 64)) & 1;
	for (int t = OOM_TASK_UNKNOWN + 1; t < OOM_TASKS; t++)
		if (hits[t] > hits[c->task])
			c->task = (enum oom_crash_task)t;
}

const char *oom_task_dialect(const struct oom_crash *c)
{
	static const char *const names[OOM_TASKS] = {NULL, "atoms", "graphs", "agents", "audio", "volumes", "video", "points", "images"};

	/* of answers a language model is the agent */
	return c->task == OOM_TASK_AGENTS && c->rolls && c->language ? NULL : names[c->task];
}
