/* Addresses of endpoints, keys that must be unpredictable, endpoints that cannot open, and where a process writes its report. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "own_process.h"

static void instance_of(const struct sockaddr_in *name, char text[9])
{
	uint32_t number;
	memcpy(&number, name->sin_zero, sizeof(number));
	CHECK(number != 0);
	snprintf(text, 9, "%08x", ntohl(number));
}

/* The name of somebody else who has the address of `name`. */
static struct sockaddr_in somebody_else(const struct sockaddr_in *name)
{
	struct sockaddr_in other = *name;
	other.sin_zero[3] ^= 1;
	return other;
}

/* One's own message comes back. */
static void send_to_self(fi_addr_t self)
{
	struct fi_cq_tagged_entry e;
	EQUAL(fi_recv(a.ep, buf + 100, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&a, fi_send(a.ep, buf, 8, NULL, self, NULL));
	abi_expect(&a, NULL, &e);
	abi_expect(&a, NULL, &e);
}

/* Two hosts that called themselves by one address each talked to itself. */
static void somebody_else_at_ones_own_address(void)
{
	char ours[9], theirs[9];
	abi_open(&a, &plain);
	struct sockaddr_in other = somebody_else(&a.name), typed = a.name, found;
	memset(typed.sin_zero, 0, sizeof(typed.sin_zero));
	struct sockaddr_in names[3] = {a.name, other, typed};
	fi_addr_t at[3];
	int errors[3] = {-1, -1, -1};
	size_t len = sizeof(found);
	instance_of(&a.name, ours);
	instance_of(&other, theirs);
	log_begin();
	int inserted = fi_av_insert(a.av, names, 3, at, FI_SYNC_ERR, errors);
	log_says((const char *[]){ours, theirs, "127.0.0.1:", "lo", "FI_SQUALL_IFACE"}, 5);
	EQUAL(inserted, 2);
	EQUAL(errors[0], 0);
	EQUAL(errors[1], FI_EADDRNOTAVAIL);
	EQUAL(errors[2], 0);
	CHECK(at[1] == FI_ADDR_NOTAVAIL && at[0] != at[2]);
	/* The others are ours: by our own name, and by an address that somebody typed. */
	send_to_self(at[0]);
	send_to_self(at[2]);
	EQUAL(fi_av_lookup(a.av, at[0], &found, &len), 0);
	CHECK(memcmp(&found, &a.name, sizeof(found)) == 0);
	EQUAL(fi_av_lookup(a.av, at[2], &found, &len), 0);
	CHECK(memcmp(&found, &typed, sizeof(found)) == 0);
	/* It shows no instance. */
	char text[2][64];
	for (int i = 0; i < 2; i++) {
		len = sizeof(text[i]);
		CHECK(fi_av_straddr(a.av, &names[i * 2], text[i], &len) == text[i]);
	}
	CHECK(strcmp(text[0], text[1]) == 0);
	abi_close(&a);
}

/* The same, inserted before the endpoint had its address. */
static void somebody_else_inserted_early(void)
{
	char theirs[9];
	abi_open(&a, &plain);
	struct sockaddr_in other = somebody_else(&a.name);
	instance_of(&other, theirs);
	/* The next endpoint there is not the one that was. */
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	EQUAL(fi_close(&a.ep->fid), 0);
	EQUAL(fi_close(&a.cq->fid), 0);
	fi_addr_t at = abi_insert(&a, &other);
	((struct sockaddr_in *)a.info->src_addr)->sin_port = other.sin_port;
	EQUAL(fi_cq_open(a.domain, &cq_attr, &a.cq, NULL), 0);
	EQUAL(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
	EQUAL(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EQUAL(fi_enable(a.ep), 0);
	log_begin();
	ssize_t rc = fi_send(a.ep, buf, 8, NULL, at, NULL);
	log_says((const char *[]){theirs, "FI_SQUALL_IFACE"}, 2);
	EQUAL(rc, -FI_EADDRNOTAVAIL);
	EQUAL(fi_tinject(a.ep, buf, 8, at, 1), -FI_EADDRNOTAVAIL);
	EQUAL(fi_recv(a.ep, buf, 8, NULL, at, NULL), -FI_EADDRNOTAVAIL);
	EQUAL(fi_write(a.ep, buf, 8, NULL, at, 0, 1, NULL), -FI_EADDRNOTAVAIL);
	abi_close(&a);
}

/* Another address vector for an enabled endpoint: sends went on to whom the indices of the first one meant. */
static void an_enabled_endpoint_keeps_its_vector(void)
{
	struct fi_av_attr attr = {.type = FI_AV_TABLE};
	struct fid_av *other;
	abi_open(&a, &plain);
	fi_addr_t self = abi_insert(&a, &a.name);
	send_to_self(self);
	EQUAL(fi_av_open(a.domain, &attr, &other, NULL), 0);
	EQUAL(fi_ep_bind(a.ep, &other->fid, 0), -FI_EOPBADSTATE);
	EQUAL(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
	send_to_self(self);
	EQUAL(fi_close(&other->fid), 0);
	abi_close(&a);
}

/* Keys were 0, 1, 2, and answers told what was wrong with one. */
static void keys_are_not_to_be_guessed(void)
{
	enum { REGIONS = 64 };
	struct want want = plain;
	want.mr_mode = FI_MR_PROV_KEY;
	open_pair(&want);
	uint64_t keys[REGIONS];
	struct fid_mr *mr[REGIONS];
	for (int i = 0; i < REGIONS; i++) {
		/* The last is not for writing. */
		uint64_t access = i < REGIONS - 1 ? FI_REMOTE_WRITE : FI_REMOTE_READ;
		EQUAL(fi_mr_reg(b.domain, buf + 1024, 64, access, 0, 0, 0, &mr[i], NULL), 0);
		keys[i] = fi_mr_key(mr[i]);
		CHECK(keys[i] >= 1ULL << 32);
		for (int j = 0; j < i; j++)
			CHECK(keys[i] - keys[j] >= 1ULL << 32 && keys[j] - keys[i] >= 1ULL << 32);
	}
	/* No such region, one that is closed, beyond the end, not for writing. */
	EQUAL(fi_close(&mr[0]->fid), 0);
	const struct fi_rma_iov wrong[] = {{0, 8, keys[1] + 1}, {0, 8, keys[0]}, {60, 8, keys[1]}, {0, 8, keys[REGIONS - 1]}};
	for (int i = 0; i < 4; i++) {
		struct fi_cq_err_entry err;
		RETRY(&a, fi_write(a.ep, buf, 8, NULL, to_b, wrong[i].addr, wrong[i].key, &contexts[i]));
		abi_expect_error(&a, &b, &err);
		CHECK(err.op_context == &contexts[i]);
		EQUAL(err.err, FI_EKEYREJECTED);
		EQUAL(err.prov_errno, 8);
	}
	struct fi_cq_tagged_entry e;
	RETRY(&a, fi_write(a.ep, buf, 8, NULL, to_b, 56, keys[1], NULL));
	abi_expect(&a, &b, &e);
	for (int i = 1; i < REGIONS; i++)
		EQUAL(fi_close(&mr[i]->fid), 0);
	abi_close(&a);
	abi_close(&b);
	EQUAL(statistic("rx_access_refused"), 4);
	EQUAL(statistic("rx_key_unknown"), 2);
	EQUAL(statistic("rx_out_of_range"), 1);
	EQUAL(statistic("rx_not_permitted"), 1);
}

/* From here on the system gives this process no random bits. */
static void refuse_randomness(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};
	EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* Without random bits an endpoint took its instance from the clock, where others can read it. */
static void without_random_bits_nothing_opens(void)
{
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	abi_open(&a, &plain);
	EQUAL(fi_cq_open(a.domain, &cq_attr, &cq, NULL), 0);
	EQUAL(fi_endpoint(a.domain, a.info, &ep, NULL), 0);
	EQUAL(fi_ep_bind(ep, &a.av->fid, 0), 0);
	EQUAL(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
	refuse_randomness();
	log_begin();
	int enabled = fi_enable(ep), opened = fi_domain(a.fabric, a.info, &domain, NULL);
	log_says((const char *[]){"endpoint's instance", "keys of memory regions", "getrandom(2)"}, 3);
	EQUAL(enabled, -FI_EIO);
	EQUAL(opened, -FI_EIO);
	EQUAL(fi_close(&ep->fid), 0);
	EQUAL(fi_close(&cq->fid), 0);
	abi_close(&a);
}

/* A message to b arrives. */
static void send_to_peer(void)
{
	struct fi_cq_tagged_entry e;
	to_b = abi_insert(&a, &b.name);
	EQUAL(fi_recv(b.ep, buf + 100, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	RETRY(&a, fi_send(a.ep, buf, 8, NULL, to_b, NULL));
	abi_expect(&a, &b, &e);
	abi_expect(&b, &a, &e);
}

/* As many descriptors as this process has open, and `more`. */
static void descriptors(rlim_t more)
{
	struct rlimit limit;
	EQUAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 256;
	EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
	int lowest = dup(0);
	CHECK(lowest >= 0);
	close(lowest);
	limit.rlim_cur = (rlim_t)lowest + more;
	EQUAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* An endpoint opens where descriptors are short: whichever call finds out says so, and the next try has them all. */
static void out_of_descriptors(void)
{
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
	int failed = 0, enabled = 0;
	abi_open(&b, &plain);
	for (int automatic = 0; automatic < 2; automatic++) {
		struct want want = plain;
		want.progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
		want.threading = FI_THREAD_SAFE;
		memset(&a, 0, sizeof(a));
		a.info = abi_info(&want);
		EQUAL(fi_fabric(a.info->fabric_attr, &a.fabric, NULL), 0);
		for (rlim_t more = 0, done = 0; !done; more++) {
			CHECK(more < 64);
			descriptors(more);
			int rc = fi_domain(a.fabric, a.info, &a.domain, NULL);
			if (rc == 0) {
				EQUAL(fi_av_open(a.domain, &av_attr, &a.av, NULL), 0);
				rc = fi_cq_open(a.domain, &cq_attr, &a.cq, NULL);
				if (rc == 0) {
					EQUAL(fi_endpoint(a.domain, a.info, &a.ep, NULL), 0);
					EQUAL(fi_ep_bind(a.ep, &a.av->fid, 0), 0);
					EQUAL(fi_ep_bind(a.ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
					rc = fi_enable(a.ep);
					enabled += rc != 0;
					if (rc == 0) {
						done = 1;
						send_to_peer();
					}
					EQUAL(fi_close(&a.ep->fid), 0);
					EQUAL(fi_close(&a.cq->fid), 0);
				}
				EQUAL(fi_close(&a.av->fid), 0);
				EQUAL(fi_close(&a.domain->fid), 0);
			}
			failed += rc != 0;
			if (rc)
				EQUAL(rc, -EMFILE);
		}
		descriptors(256);
		EQUAL(fi_close(&a.fabric->fid), 0);
		fi_freeinfo(a.info);
	}
	CHECK(failed >= 4 && enabled >= 2);
	abi_close(&b);
}

/* a's send to b is refused. */
static void expect_refusal(int err, int prov_errno)
{
	struct fi_cq_err_entry refused = {0};
	struct fi_cq_tagged_entry e;
	struct iovec iov = {buf, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to_b, .context = &contexts[1]};
	EQUAL(fi_sendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE), 0);
	EQUAL(abi_next(&a, &b, &e), -FI_EAVAIL);
	EQUAL(fi_cq_readerr(a.cq, &refused, 0), 1);
	EQUAL(refused.err, err);
	EQUAL(refused.prov_errno, prov_errno);
}

#define KEY(letters) letters letters letters letters letters letters letters letters
#define ONE KEY("ab")
#define OTHER KEY("cd")

/* Endpoints with the same key talk, wherever they got it from; others do not. */
static void keys_of_jobs(void)
{
	enum { WRONG_JOB = 12 };
	struct want by_ep = plain, by_domain = plain, other = plain;
	by_ep.ep_key = by_domain.domain_key = other.domain_key = ONE;
	other.ep_key = OTHER;
	abi_open(&a, &by_ep);
	EQUAL(a.info->ep_attr->auth_key_size, strlen(ONE));
	CHECK(memcmp(a.info->ep_attr->auth_key, ONE, strlen(ONE)) == 0);
	EQUAL(a.info->domain_attr->auth_key_size, 0);
	abi_open(&b, &by_domain);
	EQUAL(b.info->domain_attr->auth_key_size, strlen(ONE));
	to_b = abi_insert(&a, &b.name);
	meet();
	/* A region has its domain's, or names none. */
	struct fid_mr *mr;
	struct iovec iov = {buf, 8};
	struct fi_mr_attr attr = {.mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ, .auth_key_size = strlen(ONE)};
	attr.auth_key = (uint8_t *)OTHER;
	EQUAL(fi_mr_regattr(b.domain, &attr, 0, &mr), -FI_EINVAL);
	attr.auth_key = (uint8_t *)ONE;
	EQUAL(fi_mr_regattr(b.domain, &attr, 0, &mr), 0);
	EQUAL(fi_close(&mr->fid), 0);
	abi_close(&b);
	/* The endpoint's own comes before its domain's. */
	for (int keyed = 0; keyed < 2; keyed++) {
		abi_open(&b, keyed ? &other : &plain);
		to_b = abi_insert(&a, &b.name);
		expect_refusal(FI_EACCES, WRONG_JOB);
		/* What has no context has an entry, too: nothing else would end an application that waits for an
		 * answer. */
		struct fi_cq_err_entry lost = {0};
		struct fi_cq_tagged_entry e;
		EQUAL(fi_inject(a.ep, buf, 8, to_b), 0);
		EQUAL(abi_next(&a, &b, &e), -FI_EAVAIL);
		EQUAL(fi_cq_readerr(a.cq, &lost, 0), 1);
		EQUAL(lost.err, FI_EACCES);
		CHECK(lost.op_context == NULL);
		EQUAL(fi_send(a.ep, buf, 8, NULL, to_b, &contexts[2]), 0);
		EQUAL(abi_next(&a, &b, &e), -FI_EAVAIL);
		EQUAL(fi_cq_readerr(a.cq, &lost, 0), 1);
		CHECK(lost.err == FI_EACCES && lost.op_context == &contexts[2]);
		abi_close(&b);
	}
	abi_close(&a);
}

/* Keys that are too short are no hints to meet, and no endpoint has one. */
static void keys_that_can_be_found_by_trying(void)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	uint8_t key[300] = {1};
	hints->fabric_attr->prov_name = strdup("squall");
	const size_t sizes[] = {1, 15, 257, (size_t)-1};
	for (int i = 0; i < 4; i++) {
		hints->ep_attr->auth_key = key;
		hints->ep_attr->auth_key_size = sizes[i];
		EQUAL(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), -FI_ENODATA);
		hints->ep_attr->auth_key = NULL;
		hints->ep_attr->auth_key_size = 0;
	}
	fi_freeinfo(hints);
	abi_open(&a, &plain);
	struct fid_ep *ep;
	for (int i = 0; i < 5; i++) {
		a.info->ep_attr->auth_key = i < 4 ? key : NULL;
		a.info->ep_attr->auth_key_size = i < 4 ? sizes[i] : 16;
		EQUAL(fi_endpoint(a.domain, a.info, &ep, NULL), -FI_EINVAL);
	}
	a.info->ep_attr->auth_key = NULL;
	a.info->ep_attr->auth_key_size = 0;
	abi_close(&a);
}

/* The secrets that two endpoints share are in the key log, once at each end, and nobody else may read it. */
static void secrets_in_the_key_log(const char *path)
{
	char text[2048] = {0}, ends[2][64];
	struct stat about;
	EQUAL(stat(path, &about), 0);
	EQUAL(about.st_mode & 07777, 0600);
	FILE *file = fopen(path, "r");
	CHECK(file && fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	char *first = strtok(text, "\n"), *second = strtok(NULL, "\n");
	CHECK(first && second && !strtok(NULL, "\n"));
	char *secrets[2] = {strrchr(first, ' ') + 1, strrchr(second, ' ') + 1};
	EQUAL(strlen(secrets[0]), 64);
	EQUAL(strcmp(secrets[0], secrets[1]), 0);
	EQUAL(sscanf(first, "SQUALL_PAIR_SECRET %63s", ends[0]), 1);
	EQUAL(sscanf(second, "SQUALL_PAIR_SECRET %63s", ends[1]), 1);
	CHECK(strcmp(ends[0], ends[1]) != 0);
}

/* Opens an endpoint at a port of loopback. */
static void open_at(struct node *n, const char *port)
{
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_info *hints = fi_allocinfo();
	size_t len = sizeof(n->name);
	CHECK(hints);
	hints->caps = FI_MSG;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("squall");
	memset(n, 0, sizeof(*n));
	EQUAL(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", port, FI_SOURCE, hints, &n->info), 0);
	fi_freeinfo(hints);
	EQUAL(fi_fabric(n->info->fabric_attr, &n->fabric, NULL), 0);
	EQUAL(fi_domain(n->fabric, n->info, &n->domain, NULL), 0);
	EQUAL(fi_av_open(n->domain, &av, &n->av, NULL), 0);
	EQUAL(fi_cq_open(n->domain, &cq, &n->cq, NULL), 0);
	EQUAL(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
	EQUAL(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
	EQUAL(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV), 0);
	EQUAL(fi_enable(n->ep), 0);
	EQUAL(fi_getname(&n->ep->fid, &n->name, &len), 0);
}

/* Sends from a to b, by one of a's addresses. Returns whether the send fails. */
static int send_by(fi_addr_t to)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	int contexts[2];
	struct iovec iov = {buf, 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to, .context = &contexts[0]};
	EQUAL(fi_recv(b.ep, buf + 100, 8, NULL, FI_ADDR_UNSPEC, &contexts[1]), 0);
	/* It is complete when b has it: a copied message may be lost with the endpoint that was there. */
	RETRY(&a, fi_sendmsg(a.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	if (abi_next(&a, &b, &e) != 1) {
		EQUAL(fi_cq_readerr(a.cq, &err, 0), 1);
		EQUAL(fi_cancel(&b.ep->fid, &contexts[1]), 0);
		abi_expect_error(&b, &a, &err);
		EQUAL(err.err, FI_ECANCELED);
		return 1;
	}
	abi_expect(&b, &a, &e);
	return 0;
}

/* An address that a user typed means whichever endpoint is there, also where the same user has the endpoint's name. */
static void a_typed_address_outlives_the_named_endpoint(void)
{
	char port[16];
	fi_addr_t typed, named[3];
	open_at(&a, NULL);
	open_at(&b, NULL);
	snprintf(port, sizeof(port), "%d", ntohs(b.name.sin_port));
	EQUAL(fi_av_insertsvc(a.av, "127.0.0.1", port, &typed, 0, NULL), 1);
	for (int k = 0; k < 3; k++) {
		EQUAL(send_by(typed), 0);
		EQUAL(fi_av_insert(a.av, &b.name, 1, &named[k], 0, NULL), 1);
		EQUAL(send_by(named[k]), 0);
		EQUAL(send_by(typed), 0);
		abi_close(&b);
		/* The peer's close arrives. */
		for (double end = abi_now() + 0.3; abi_now() < end;)
			(void)fi_cq_read(a.cq, NULL, 0);
		open_at(&b, port);
		/* The first send may find out that the endpoint is another one. */
		if (send_by(typed) != 0)
			EQUAL(send_by(typed), 0);
		for (int gone = 0; gone <= k; gone++)
			CHECK(send_by(named[gone]) != 0);
		EQUAL(send_by(typed), 0);
	}
	abi_close(&b);
	abi_close(&a);
}

/* The key in a file, which others must not be able to read. */
static void key_in_a_file(void)
{
	char path[600], key_log[600];
	struct fid_ep *ep;
	snprintf(path, sizeof(path), "%s.key", stats);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	CHECK(fd >= 0);
	EQUAL(write(fd, ONE "\n", strlen(ONE) + 1), (ssize_t)strlen(ONE) + 1);
	setenv("FI_SQUALL_KEY_FILE", path, 1);
	snprintf(key_log, sizeof(key_log), "%s.keys", stats);
	setenv("FI_SQUALL_KEY_LOG", key_log, 1);
	log_begin();
	open_pair(&plain);
	log_says((const char *[]){key_log, "can decrypt the packets"}, 2);
	meet();
	secrets_in_the_key_log(key_log);
	EQUAL(fchmod(fd, 0640), 0);
	close(fd);
	log_begin();
	int rc = fi_endpoint(a.domain, a.info, &ep, NULL);
	log_says((const char *[]){path, "chmod 600"}, 2);
	EQUAL(rc, -FI_EACCES);
	unlink(key_log);
	unlink(path);
	EQUAL(fi_endpoint(a.domain, a.info, &ep, NULL), -FI_ENOENT);
	abi_close(&b);
	abi_close(&a);
}

/* Enables another endpoint of a's domain, which is refused with these words in the log. */
static int enable_another(struct fi_info *info, const char *words[], int n)
{
	struct fid_ep *ep;
	log_begin();
	EQUAL(fi_endpoint(a.domain, info, &ep, NULL), 0);
	EQUAL(fi_ep_bind(ep, &a.av->fid, 0), 0);
	EQUAL(fi_ep_bind(ep, &a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	int rc = fi_enable(ep);
	EQUAL(fi_close(&ep->fid), 0);
	log_says(words, n);
	return rc;
}

/* An endpoint that must encrypt needs a key. */
static void encryption_without_a_key(void)
{
	struct want keyed = plain;
	keyed.ep_key = ONE;
	setenv("FI_SQUALL_TSS", "required", 1);
	abi_open(&a, &keyed);
	struct fi_info *info = fi_dupinfo(a.info);
	CHECK(info);
	info->ep_attr->auth_key_size = 0;
	const char *words[] = {"FI_SQUALL_TSS=required", "no job key", "FI_SQUALL_KEY_FILE"};
	EQUAL(enable_another(info, words, 3), -FI_EACCES);
	info->ep_attr->auth_key_size = strlen(ONE);
	fi_freeinfo(info);
	abi_close(&a);
}

/* A setting that protects and is not understood is not replaced by one that protects less. Squall is listed all the same:
 * an MPI would otherwise choose another provider, which does not protect. */
static void is_not_understood(const char *variable, const char *value)
{
	const char *words[] = {"cannot open a domain", variable, "expected", "unset the variable"};
	setenv(variable, value, 1);
	struct fi_info *info = abi_info(&plain);
	CHECK(info);
	EQUAL(strcmp(info->fabric_attr->prov_name, "squall"), 0);
	EQUAL(fi_fabric(info->fabric_attr, &a.fabric, NULL), 0);
	log_begin();
	int rc = fi_domain(a.fabric, info, &a.domain, NULL);
	log_says(words, 4);
	EQUAL(rc, -FI_EINVAL);
	EQUAL(fi_close(&a.fabric->fid), 0);
	fi_freeinfo(info);
}

static void encryption_that_is_not_understood(void)
{
	is_not_understood("FI_SQUALL_TSS", "Required");
}

static void peers_that_are_not_understood(void)
{
	is_not_understood("FI_SQUALL_PEERS", "AV");
}

static void a_key_file_without_a_name(void)
{
	is_not_understood("FI_SQUALL_KEY_FILE", "");
}

/* Switches cannot write into encrypted packets. */
static void encryption_where_switches_write(void)
{
	setenv("FI_SQUALL_CC", "hpcc", 1);
	abi_open(&a, &plain);
	struct fi_info *info = fi_dupinfo(a.info);
	CHECK(info);
	info->ep_attr->auth_key = (uint8_t *)strdup(ONE);
	info->ep_attr->auth_key_size = strlen(ONE);
	const char *words[] = {"FI_SQUALL_CC=hpcc", "encryption", "FI_SQUALL_TSS=off"};
	EQUAL(enable_another(info, words, 3), -FI_EINVAL);
	fi_freeinfo(info);
	abi_close(&a);
}

/* Who is not in the address vector waits until it is, and is a stranger again when it was removed. */
static void peers_in_the_address_vector_alone(void)
{
	enum { CLOSED = 7, NOT_LISTED = 16 };
	struct fi_cq_tagged_entry e;
	setenv("FI_SQUALL_PEERS", "av", 1);
	setenv("FI_SQUALL_DEADLINE", "2s", 1);
	open_pair(&plain);
	EQUAL(fi_recv(b.ep, buf + 100, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	EQUAL(fi_send(a.ep, buf, 8, NULL, to_b, &contexts[1]), 0);
	for (double end = abi_now() + 0.5; abi_now() < end;) {
		EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
		EQUAL(fi_cq_read(b.cq, &e, 1), -FI_EAGAIN);
	}
	fi_addr_t to_a = abi_insert(&b, &a.name);
	abi_expect(&a, &b, &e);
	abi_expect(&b, &a, &e);
	EQUAL(fi_av_remove(b.av, &to_a, 1, 0), 0);
	turns(100);
	expect_refusal(FI_ECONNABORTED, CLOSED);
	expect_refusal(FI_EACCES, NOT_LISTED);
	abi_close(&b);
	abi_close(&a);
}

/* Opens a pair and closes it, so that the report of this process is due. */
static void use_and_close(void)
{
	open_pair(&plain);
	meet();
	abi_close(&a);
	abi_close(&b);
}

/* Returns the number of bytes that can be read at `from`, at once. */
static ssize_t written_to(int from)
{
	char text[4096];
	EQUAL(fcntl(from, F_SETFL, O_NONBLOCK), 0);
	ssize_t len = read(from, text, sizeof(text));
	return len < 0 && errno == EAGAIN ? 0 : len;
}

/* A launcher reads the report from a pipe. */
static void the_report_goes_to_standard_error(void)
{
	int ends[2], screen = dup(2);
	EQUAL(pipe(ends), 0);
	EQUAL(dup2(ends[1], 2), 2);
	use_and_close();
	EQUAL(dup2(screen, 2), 2);
	CHECK(written_to(ends[0]) > 100);
}

/* The application closes standard error, and its next file has the number 2. */
static void the_report_spares_a_file_with_the_number_2(void)
{
	char name[600];
	int screen = dup(2);
	snprintf(name, sizeof(name), "%s.data", stats);
	close(2);
	int file = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
	unlink(name);
	use_and_close();
	ssize_t len = lseek(2, 0, SEEK_END);
	dup2(screen, 2);
	EQUAL(file, 2);
	EQUAL(len, 0);
}

/* Standard error that is replaced after the provider was loaded gets neither report nor statistics, a pipe included. */
static void lines_spare_what_replaces_standard_error(void)
{
	int ends[2], other[2], screen = dup(2);
	EQUAL(pipe(ends), 0);
	EQUAL(pipe(other), 0);
	EQUAL(dup2(ends[1], 2), 2);
	setenv("FI_SQUALL_STATS", "text", 1);
	fi_freeinfo(abi_info(&plain));
	EQUAL(dup2(other[1], 2), 2);
	use_and_close();
	EQUAL(dup2(screen, 2), 2);
	EQUAL(written_to(other[0]), 0);
}

static const struct test tests[] = {
	TEST(somebody_else_at_ones_own_address, NULL, NULL, 1),
	TEST(somebody_else_inserted_early, NULL, NULL, 1),
	TEST(an_enabled_endpoint_keeps_its_vector, NULL, NULL, 0),
	TEST(a_typed_address_outlives_the_named_endpoint, NULL, NULL, 0),
	TEST(keys_are_not_to_be_guessed, NULL, NULL, 0),
	TEST(without_random_bits_nothing_opens, NULL, NULL, 1),
	TEST(out_of_descriptors, NULL, NULL, 0),
	TEST(keys_of_jobs, NULL, NULL, 0),
	TEST(keys_that_can_be_found_by_trying, NULL, NULL, 0),
	TEST(key_in_a_file, NULL, NULL, 1),
	TEST(encryption_without_a_key, NULL, NULL, 0),
	TEST(encryption_that_is_not_understood, NULL, NULL, 0),
	TEST(peers_that_are_not_understood, NULL, NULL, 0),
	TEST(a_key_file_without_a_name, NULL, NULL, 0),
	TEST(encryption_where_switches_write, NULL, NULL, 0),
	TEST(peers_in_the_address_vector_alone, NULL, NULL, 0),
	TEST(the_report_goes_to_standard_error, NULL, NULL, 0, {"FI_SQUALL_REPORT=yes"}),
	TEST(the_report_spares_a_file_with_the_number_2, NULL, NULL, 0, {"FI_SQUALL_REPORT=yes"}),
	TEST(lines_spare_what_replaces_standard_error, NULL, NULL, 0, {"FI_SQUALL_REPORT=yes"}),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
