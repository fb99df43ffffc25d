/* Where a model named by its hub id lies: bundled, in a folder of models, in the local hub cache
 * (huggingface_hub/file_download.py: models--ORG--NAME/refs/main names a folder of snapshots/). */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "input/copies.h"
#include "input/model_ids.h"
#include "oomplan/config.h"

enum { PATH = 1024 };

static bool exists(const char *path, bool folder)
{
	struct stat st;

	return stat(path, &st) == 0 && (folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode));
}

/* A folder with a config.json, or a file. */
static bool is_model(const char *path)
{
	char config[PATH];

	if (exists(path, false))
		return true;
	return (size_t)snprintf(config, sizeof(config), "%s/config.json", path) < sizeof(config) &&
	       exists(config, false);
}

static bool take(char *buf, size_t size, const char *path)
{
	return is_model(path) && (size_t)snprintf(buf, size, "%s", path) < size;
}

/* The bundled model itself; else, with `shape`, one whose config has the same shape, as a copy in fewer bits where the
 * name is one. */
static bool bundled(const char *name, bool shape, char *buf, size_t size)
{
	const char *slash, *ending = oom_copy_ending(name);
	struct oom_model_id id;

	if (!oom_model_id_find(name, &id))
		return false;
	slash = strrchr(id.hub_id, '/');
	return (shape || !strcasecmp(name, id.bundled) || (slash && !strcasecmp(name, slash + 1))) &&
	       (size_t)snprintf(buf, size, "%s%s", id.bundled, ending ? ending : "") < size;
}

/* DIR/ORG/NAME, DIR/NAME, each also with .json, and ORG--NAME, ORG__NAME as downloads are named. */
static bool in_folder(const char *dir, const char *id, const char *name, char *buf, size_t size)
{
	static const char *const joints[] = {"--", "__", "_", NULL};
	const int org = (int)(name - id) - (name > id);
	char path[PATH];

	for (int json = 0; json < 2; json++) {
		const char *end = json ? ".json" : "";

		if ((size_t)snprintf(path, sizeof(path), "%s/%s%s", dir, id, end) < sizeof(path) &&
		    take(buf, size, path))
			return true;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s%s", dir, name, end) < sizeof(path) &&
		    take(buf, size, path))
			return true;
		for (size_t j = 0; org > 0 && joints[j]; j++)
			if ((size_t)snprintf(path, sizeof(path), "%s/%.*s%s%s%s", dir, org, id, joints[j],
					     name, end) < sizeof(path) &&
			    take(buf, size, path))
				return true;
	}
	return false;
}

/* The snapshot that refs/main names, else any that holds a config.json. */
static bool in_snapshots(const char *repo, char *buf, size_t size)
{
	char path[PATH], revision[80] = "", first[256] = "";
	struct dirent *e;
	bool found = false;
	FILE *f;
	DIR *d;

	if ((size_t)snprintf(path, sizeof(path), "%s/refs/main", repo) >= sizeof(path))
		return false;
	f = exists(path, false) ? fopen(path, "r") : NULL;
	if (f) {
		if (!fgets(revision, sizeof(revision), f))
			revision[0] = 0;
		fclose(f);
		revision[strcspn(revision, " \r\n/")] = 0;
	}
	if (*revision &&
	    (size_t)snprintf(path, sizeof(path), "%s/snapshots/%s", repo, revision) < sizeof(path) &&
	    take(buf, size, path))
		return true;
	if ((size_t)snprintf(path, sizeof(path), "%s/snapshots", repo) >= sizeof(path))
		return false;
	d = opendir(path);
	/* which comes first is the file system's affair: the first by name, so that the answer is always the same */
	while (d && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.' && (!found || strcmp(e->d_name, first) < 0) &&
		    (size_t)snprintf(path, sizeof(path), "%s/snapshots/%s", repo, e->d_name) < sizeof(path) &&
		    exists(path, true) && take(buf, size, path)) {
			snprintf(first, sizeof(first), "%s", e->d_name);
			found = true;
		}
	if (d)
		closedir(d);
	return found;
}

static bool in_cache(const char *id, const char *name, char *buf, size_t size)
{
	static const struct {
		const char *variable, *below;
	} places[] = {
		{"HF_HUB_CACHE", ""},
		{"HUGGINGFACE_HUB_CACHE", ""},
		{"HF_HOME", "/hub"},
		{"XDG_CACHE_HOME", "/huggingface/hub"},
		{"HOME", "/.cache/huggingface/hub"},
	};
	const int org = (int)(name - id) - (name > id);

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *dir = getenv(places[i].variable);
		char repo[PATH];

		if (!dir || !*dir)
			continue;
		if ((size_t)snprintf(repo, sizeof(repo), "%s%s/models--%.*s%s%s", dir, places[i].below,
				     org > 0 ? org : 0, id, org > 0 ? "--" : "", name) < sizeof(repo) &&
		    in_snapshots(repo, buf, size))
			return true;
	}
	return false;
}

/* A path as it stands, or beside the file that names it. */
static bool as_path(const char *id, const char *beside, char *buf, size_t size)
{
	const char *slash = beside ? strrchr(beside, '/') : NULL;
	char path[PATH];

	if (take(buf, size, id))
		return true;
	return slash && *id != '/' &&
	       (size_t)snprintf(path, sizeof(path), "%.*s%s", (int)(slash - beside) + 1, beside, id) <
		       sizeof(path) &&
	       take(buf, size, path);
}

enum oom_status oom_model_locate(const char *id, const char *beside, const char *models_dir, char *buf,
				 size_t size, struct oom_error *err)
{
	const char *slash = strrchr(id, '/'), *name = slash ? slash + 1 : id;

	if (!strcmp(id, "-") || as_path(id, beside, buf, size) || bundled(name, false, buf, size) ||
	    (models_dir && in_folder(models_dir, id, name, buf, size)) || in_cache(id, name, buf, size) ||
	    bundled(name, true, buf, size)) {
		if (!strcmp(id, "-"))
			snprintf(buf, size, "-");
		return OOM_OK;
	}
	if (!slash || *id == '/' || *id == '.')
		return oom_error_set(err, OOM_ERR_UNKNOWN,
				     "model %.100s: no such file or folder with a config.json, and no "
				     "bundled model of that name; give --model FILE",
				     id);
	return oom_error_set(err, OOM_ERR_UNKNOWN,
			     "model %.100s: its config.json is not here; fetch "
			     "https://huggingface.co/%.100s/resolve/main/config.json (or run: hf download "
			     "%.100s config.json) and give --model FILE, or a folder of models with "
			     "--models-dir",
			     id, id, id);
}
