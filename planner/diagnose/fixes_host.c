/* What to change where the host's memory ran out over one array: by its size. Where the sizes lie between which words
 * change is a judgement: 256 GiB is more than most hosts have, 8 GiB more than most arrays that somebody meant. */
#include <string.h>

#include "tables.h"

static const uint64_t GIB = UINT64_C(1) << 30;

/* One array, not the sum of many, took the host's memory. */
static bool one_array(const struct oom_crash *c, uint64_t least)
{
	return oom_format_is(c, OOM_FORMAT_ONE_ARRAY) && c->known[OOM_CRASH_TRIED] && c->bytes[OOM_CRASH_TRIED] >= least;
}

bool oom_host_array(const struct oom_crash *c)
{
	return one_array(c, GIB);
}

bool oom_host_array_huge(const struct oom_crash *c)
{
	return one_array(c, 256 * GIB);
}

/* Sound and pictures grow with what is read at once. */
static bool is_read(const struct oom_crash *c)
{
	return c->task == OOM_TASK_VIDEO || c->task == OOM_TASK_VOLUMES || c->task == OOM_TASK_AUDIO || c->task == OOM_TASK_IMAGES;
}

void oom_fixes_host(const struct oom_crash *c, struct oom_crash_answer *a)
{
	/* an engine's states are no array that anybody meant smaller */
	if (c->phase == OOM_CRASH_INIT && oom_lever_own(c, OOM_LEVER_HOST))
		return;
	if (one_array(c, GIB) && is_read(c) && (*c->own_line || c->phase == OOM_CRASH_INFERENCE) && !oom_lever_own(c, OOM_LEVER_ARRAY))
		oom_fix_lever(c, a, "", OOM_LEVER_CONTEXT);
	if (c->text_array)
		oom_fix_add(a, "", "dtype=object, or a list: an array of fixed-width text gives every entry the width of the longest");
	if (c->wide && oom_own_script(c) && one_array(c, GIB / 4) && !oom_host_array_huge(c))
		oom_fix_add(a, "", "numbers of 4 bytes (dtype float32, int32) in place of NumPy's 8: the array, and those like it before, take half");
	if (one_array(c, GIB) && c->pairs)
		oom_fix_add(a, "", "a sparse form of that matrix (scipy.sparse), or a block of its rows at a time; of half as many things it takes a quarter");
	/* who knows what the array is says how it gets smaller */
	if (oom_host_array_huge(c) && oom_lever_own(c, OOM_LEVER_ARRAY))
		oom_fix_lever(c, a, "", OOM_LEVER_ARRAY);
	if (oom_host_array_huge(c))
		oom_fix_lever(c, a, "", OOM_LEVER_ARRAY_HUGE);
	else if (one_array(c, 8 * GIB) || (one_array(c, GIB) && oom_lever_own(c, OOM_LEVER_ARRAY)))
		oom_fix_lever(c, a, "", OOM_LEVER_ARRAY);
	else if (oom_format_is(c, OOM_FORMAT_ONE_ARRAY) && c->known[OOM_CRASH_TRIED] && !one_array(c, GIB / 4))
		/* a program that has words for it keeps what they say */
		oom_fix_lever(c, a, "", oom_lever_own(c, OOM_LEVER_HOST) ? OOM_LEVER_HOST : OOM_LEVER_KEEP);
}

bool oom_host_computed(const struct oom_crash *c)
{
	return *c->own_line && c->traceback && !strstr(c->own_line, "load");
}

/* One of some GiB may be meant: behind the memory that it lacks. */
void oom_fixes_host_behind(const struct oom_crash *c, struct oom_crash_answer *a)
{
	/* a weight is as large as its model has it */
	if (one_array(c, GIB) && !one_array(c, 8 * GIB) && oom_crash_work(c) != OOM_WORK_LOADING)
		oom_fix_lever(c, a, "", OOM_LEVER_ARRAY);
	if (oom_crash_work(c) == OOM_WORK_INFERENCE && oom_host_computed(c) && !one_array(c, GIB))
		oom_fix_add(a, "", "smaller inputs, or each in pieces: what one of them makes, in full size and for all classes, has to fit the host's memory");
}
