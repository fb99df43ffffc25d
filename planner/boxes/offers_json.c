/* Price lists as JSON: `dstack offer --json`, and gpuhunt's items as objects.
 *
 * A second, small cJSON door beside config.c: a price list is a long array of small objects, and
 * only one of them is made a tree at a time, so that the memory needed does not depend on the file.
 * The array is found by a scanner that knows strings and brackets and nothing else. */
#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../input/config_json.h"
#include "offers_parts.h"
#include "oomplan/units.h"

#define MAX_OBJECT (64u * 1024)
#define MAX_DEPTH 64
#define MAX_TEXT ((size_t)256 << 20)

struct scan {
	const char *file, *text;
	size_t size, at;
};

static void skip_blanks(struct scan *s)
{
	while (s->at < s->size && s->text[s->at] && strchr(" \t\r\n", s->text[s->at]))
		s->at++;
}

static char peek(struct scan *s)
{
	skip_blanks(s);
	return s->at < s->size ? s->text[s->at] : 0;
}

static bool skip_string(struct scan *s)
{
	for (s->at++; s->at < s->size; s->at++) {
		if (s->text[s->at] == '\\')
			s->at++;
		else if (s->text[s->at] == '"') {
			s->at++;
			return true;
		}
	}
	return false;
}

/* Steps over one value; brackets must match in number, cJSON checks the rest. */
static bool skip_value(struct scan *s)
{
	int depth = 0;

	do {
		const char c = peek(s);

		if (!c)
			return false;
		if (c == '"') {
			if (!skip_string(s))
				return false;
			continue;
		}
		if (c == '{' || c == '[') {
			if (++depth > MAX_DEPTH)
				return false;
		} else if (c == '}' || c == ']') {
			if (--depth < 0)
				return false;
		} else if (depth == 0) {
			const size_t start = s->at;

			while (s->at < s->size && s->text[s->at] &&
			       !strchr(" \t\r\n,]}", s->text[s->at]))
				s->at++;
			return s->at > start;
		}
		s->at++;
	} while (depth);
	return true;
}

static size_t line_at(const struct scan *s)
{
	size_t line = 1;

	for (size_t i = 0; i < s->at && i < s->size; i++)
		line += s->text[i] == '\n';
	return line;
}

static enum oom_status malformed(const struct scan *s,
				 const char *what, struct oom_error *err)
{
	return oom_error_set(err, OOM_ERR_PARSE, "%s:%zu: %s", s->file, line_at(s), what);
}

/* Moves to the first element of the list: the document itself, or what its key "offers" holds. */
static enum oom_status find_list(struct scan *s,
				 struct oom_error *err)
{
	if (s->size >= 3 && memcmp(s->text, "\xef\xbb\xbf", 3) == 0)
		s->at = 3;
	if (peek(s) == '{') {
		s->at++;
		while (peek(s) == '"') {
			const size_t key = s->at;
			bool found;

			if (!skip_string(s))
				return malformed(s, "a string is not closed", err);
			found = s->at - key == strlen("\"offers\"") &&
				memcmp(s->text + key, "\"offers\"", s->at - key) == 0;
			if (peek(s) != ':')
				return malformed(s, "not JSON: ':' expected", err);
			s->at++;
			if (found && peek(s) == '[')
				break;
			if (!skip_value(s))
				return malformed(s, "not JSON, or nested too deeply", err);
			if (peek(s) == ',')
				s->at++;
		}
	}
	if (peek(s) != '[')
		return oom_error_set(
			err, OOM_ERR_INVALID,
			"%s: not a price list: an array of offers, or an object with the "
			"key \"offers\" (dstack offer --json), is needed",
			s->file);
	s->at++;
	return OOM_OK;
}

static const char *text_of(const cJSON *object, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsString(v) ? v->valuestring : "";
}

static double number_of(const cJSON *object, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNumber(v) && isfinite(v->valuedouble) ? v->valuedouble : NAN;
}

/* A price that is there but no number ("$3.20") is counted; an absent one or null is not. */
static double price_of(struct oom_offer_loader *l, const cJSON *object)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, "price");

	if (v && !cJSON_IsNumber(v) && !cJSON_IsNull(v))
		l->o->bad_number++;
	return oom_offer_price(l->o, number_of(object, "price"));
}

static double in_range(double v, double max)
{
	return v >= 0 && v <= max ? v : NAN;
}

static void copy(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%.*s", (int)size - 1, from);
}

/* gpuhunt's CatalogItem as an object (github.com/dstackai/gpuhunt @3584151): GB as in its CSV. */
static enum oom_status add_gpuhunt(struct oom_offer_loader *l, struct oom_offer *f, const cJSON *o,
				   struct oom_error *err)
{
	copy(f->provider, sizeof(f->provider),
	     *text_of(o, "provider") ? text_of(o, "provider") : l->provider);
	copy(f->instance, sizeof(f->instance), text_of(o, "instance_name"));
	copy(f->region, sizeof(f->region), text_of(o, "location"));
	copy(f->gpu_name, sizeof(f->gpu_name),
	     oom_offer_is_other(text_of(o, "gpu_vendor"), text_of(o, "gpu_name")) ? "" : text_of(o, "gpu_name"));
	f->vcpus = in_range(number_of(o, "cpu"), 1e6);
	/* its GB are 2^30, see hunt_row */
	f->host_ram_gib = in_range(number_of(o, "memory"), 1e7);
	f->disk_gib = in_range(number_of(o, "disk_size"), 1e9);
	return oom_offer_add(l, f, number_of(o, "gpu_count"), number_of(o, "gpu_memory"), err);
}

/* What dstack writes as an offer's disk where neither the catalogue nor the user names one: what it would ask for, not
 * what there is (core/models/resources.py, DEFAULT_DISK; core/backends/base/offers.py, choose_disk_size_mib). */
#define DSTACK_DISK_GIB 100

/* dstack (github.com/dstackai/dstack, cli/utils/run.py: print_offers_json; later
 * cli/models/offers.py): resources stand in the offer or in its instance; GPUs are listed one by
 * one and are all of one kind. */
static enum oom_status add_dstack(struct oom_offer_loader *l, struct oom_offer *f, const cJSON *o,
				  const cJSON *resources, struct oom_error *err)
{
	const cJSON *instance = cJSON_GetObjectItemCaseSensitive(o, "instance");
	const cJSON *gpus = cJSON_GetObjectItemCaseSensitive(resources, "gpus"),
		    *first = cJSON_GetArrayItem(gpus, 0);

	copy(f->provider, sizeof(f->provider), text_of(o, "backend"));
	copy(f->instance, sizeof(f->instance),
	     instance ? text_of(instance, "name") : text_of(o, "instance_type"));
	copy(f->region, sizeof(f->region), text_of(o, "region"));
	copy(f->gpu_name, sizeof(f->gpu_name),
	     oom_offer_is_other(text_of(first, "vendor"), text_of(first, "name")) ? "" : text_of(first, "name"));
	for (const cJSON *g = first ? first->next : NULL; g; g = g->next)
		if (strcmp(text_of(g, "name"), text_of(first, "name"))) {
			l->o->malformed++;      /* cards of several kinds in one machine */
			return OOM_OK;
		}
	f->vcpus = in_range(number_of(resources, "cpus"), 1e6);
	f->host_ram_gib = in_range(number_of(resources, "memory_mib"), 1e10) / 1024;
	f->disk_gib = in_range(number_of(cJSON_GetObjectItemCaseSensitive(resources, "disk"),
					 "size_mib"),
			       1e12) /
		      1024;
	if (!(f->disk_gib > 0) || f->disk_gib == DSTACK_DISK_GIB)
		f->disk_gib = NAN;              /* Disk: size_mib = 0 says that it is unknown */
	return oom_offer_add(l, f, cJSON_GetArraySize(gpus), number_of(first, "memory_mib") / 1024,
			     err);
}

/* dstack's InstanceAvailability.is_available() (core/models/instances.py): of the words that it has and will have, those that
 * mean that an offer can be taken.  gpuhunt says nothing of it. */
static bool can_be_had(const cJSON *o)
{
	static const char *const words[] = {"", "unknown", "available", "idle"};
	const char *word = text_of(o, "availability");

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(word, words[i]))
			return true;
	return false;
}

static enum oom_status add_object(struct oom_offer_loader *l, const cJSON *o, struct oom_error *err)
{
	const cJSON *instance = cJSON_GetObjectItemCaseSensitive(o, "instance");
	const cJSON *resources = cJSON_GetObjectItemCaseSensitive(instance ? instance : o,
								  "resources");
	const bool hunt = cJSON_GetObjectItemCaseSensitive(o, "instance_name") != NULL;
	const bool spot = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "spot")) ||
			  cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(resources, "spot"));
	struct oom_offer f = {.gpu = -1, .ondemand_usd_h = NAN, .spot_usd_h = NAN,
			      .storage_usd_gib_month = NAN, .egress_usd_gib = NAN};

	l->o->rows++;
	if (!cJSON_IsObject(o) || (!hunt && !cJSON_GetObjectItemCaseSensitive(o, "backend"))) {
		l->o->malformed++;              /* no offer of dstack or gpuhunt */
		return OOM_OK;
	}
	if (!can_be_had(o)) {
		l->o->unavailable++;
		return OOM_OK;
	}
	*(spot ? &f.spot_usd_h : &f.ondemand_usd_h) = price_of(l, o);
	return hunt ? add_gpuhunt(l, &f, o, err) : add_dstack(l, &f, o, resources, err);
}

bool oom_offers_are_json(const char *path)
{
	const size_t n = strlen(path);

	return n > 5 && !strcmp(path + n - 5, ".json");
}

static enum oom_status read_list(struct oom_offer_loader *l, struct scan *s, struct oom_error *err)
{
	enum oom_status st = find_list(s, err);

	while (!st && peek(s) != ']') {
		const size_t start = s->at;
		cJSON *object;

		if (!skip_value(s))
			return malformed(s,
					 "not JSON: the list is not closed, or nested too deeply",
					 err);
		if (s->at - start > MAX_OBJECT)
			return malformed(s, "an offer of more than 64 KiB", err);
		object = cJSON_ParseWithLength(s->text + start, s->at - start);
		if (!object)
			return malformed(s, "not JSON", err);
		st = add_object(l, object, err);
		cJSON_Delete(object);
		if (!st && peek(s) == ',')
			s->at++;
		else if (!st && peek(s) != ']')
			return malformed(s, "not JSON: ',' or ']' expected", err);
	}
	return st;
}

enum oom_status oom_offers_parse_json(struct oom_offer_loader *l, const char *text, size_t size,
				      const char *name, struct oom_error *err)
{
	const struct oom_locale locale = oom_locale_enter();
	struct scan s = {.file = name, .text = text, .size = size};
	const enum oom_status st = read_list(l, &s, err);

	oom_locale_leave(locale);
	return st;
}

enum oom_status oom_offers_read_json(struct oom_offer_loader *l, const char *path,
				     struct oom_error *err)
{
	char *text = NULL;
	size_t size;
	enum oom_status st = oom_read_text(&text, &size, path, MAX_TEXT, err);

	if (!st)
		st = oom_offers_parse_json(l, text, size, path, err);
	free(text);
	return st;
}
