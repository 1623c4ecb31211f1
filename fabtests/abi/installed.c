/*
 * The provider in a directory called libfabric, where a package puts it and every process loads it: it answers only if it is
 * named, and is not noticed otherwise.
 */
#include <dirent.h>

#include "own_process.h"

/* Entries of squall that fi_getinfo returns for an endpoint on loopback, where `name` is the provider of the hints or NULL. */
static int answers(const char *name)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	int count = 0;
	hints->ep_attr->type = FI_EP_RDM;
	if (name)
		hints->fabric_attr->prov_name = strdup(name);
	int rc = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info);
	CHECK(rc == 0 || rc == -FI_ENODATA);
	for (struct fi_info *entry = info; entry; entry = entry->next)
		count += strcmp(entry->fabric_attr->prov_name, "squall") == 0;
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return count;
}

/* How many threads of squall this process has. */
static int threads(void)
{
	int found = 0;
	DIR *tasks = opendir("/proc/self/task");
	CHECK(tasks != NULL);
	for (struct dirent *task; (task = readdir(tasks));) {
		char path[300], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		FILE *f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f))
			found += strncmp(name, "squall-", 7) == 0;
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return found;
}

/* The log's lines of squall, which other providers surround. */
static void squall_lines(char *lines, size_t size)
{
	static char text[1 << 20];
	size_t len = 0;
	log_read(text, sizeof(text));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (strstr(line, ":squall:"))
			len += (size_t)snprintf(lines + len, size - len, "%s\n", line);
	CHECK(len > 0 && len < size);
}

static void unnamed(void)
{
	char lines[8192];
	const char *words[] = {"tmp/libfabric and nothing names it", "set FI_PROVIDER=squall or FI_SQUALL_ENABLE=yes", "/etc/squall.conf"};
	log_begin();
	EQUAL(answers(NULL), 0);
	EQUAL(threads(), 0);
	squall_lines(lines, sizeof(lines));
	for (int i = 0; i < 3; i++)
		if (!strstr(lines, words[i]))
			FAIL("the log does not say %s but: %s", words[i], lines);
	/* Neither another parameter nor an interface was looked at. */
	CHECK(strstr(lines, "variable enable") && !strstr(lines, "variable iface") && !strstr(lines, "interface"));
	/* The same process may name it later. */
	CHECK(answers("squall") > 0);
	EQUAL(answers(NULL), 0);
}

static void named(void)
{
	CHECK(answers(NULL) > 0);
	CHECK(answers("squall") > 0);
}

static void excluded(void)
{
	EQUAL(answers(NULL), 0);
	EQUAL(answers("tcp"), 0);
	CHECK(answers("squall") > 0);
	CHECK(answers("Squall") > 0);
}

static void disabled(void)
{
	const char *words[] = {"FI_SQUALL_ENABLE=no disables squall; unset it"};
	log_begin();
	EQUAL(answers(NULL), 0);
	EQUAL(answers("squall"), 0);
	log_says(words, 1);
}

static void mistyped(void)
{
	const char *words[] = {"FI_SQUALL_ENABLE=perhaps: expected auto, yes or no"};
	log_begin();
	EQUAL(answers(NULL), 0);
	log_says(words, 1);
}

/* A whole endpoint. Nothing is printed about a provider that was not named. */
static void used(void)
{
	use_silently(&plain);
}

static const struct test tests[] = {
	{"unnamed", unnamed, NULL, NULL, 1, {"FI_LOG_LEVEL=debug"}},
	{"named", named, NULL, NULL, 0, {"FI_PROVIDER=tcp,squall"}},
	{"named_in_capitals", named, NULL, NULL, 0, {"FI_PROVIDER=SQUALL"}},
	{"named_for_an_mpi", named, NULL, NULL, 0, {"OMPI_MCA_mtl_ofi_provider_include=squall"}},
	{"excluding_another", excluded, NULL, NULL, 0, {"FI_PROVIDER=^udp"}},
	{"enabled", named, NULL, NULL, 0, {"FI_SQUALL_ENABLE=1"}},
	{"disabled", disabled, NULL, NULL, 1, {"FI_SQUALL_ENABLE=no", "FI_PROVIDER=squall"}},
	{"mistyped", mistyped, NULL, NULL, 1, {"FI_SQUALL_ENABLE=perhaps"}},
	{"used", used, NULL, NULL, 1, {NULL}},
};

int main(int argc, char **argv)
{
	/* What the caller uses. */
	if (argc == 1)
		unsetenv("FI_PROVIDER");
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
