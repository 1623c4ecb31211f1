/* The wires of other implementations (FI_SQUALL_WIRE) over sockets: messages and RMA of two endpoints, what cannot be
 * opened, and peers that do not fit. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "own_process.h"

enum { LARGEST = 1 << 20, KEY = 7 };

static unsigned char out[2][LARGEST], in[2][LARGEST], region[LARGEST];
static const char a_ip[] = "127.0.0.1", b_ip[] = "127.0.0.2";

/* Gives the loopback interface, or its alias, an address. */
static void set_address(const char *interface, const char *ip)
{
	struct ifreq request = {0};
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
	address->sin_family = AF_INET;
	inet_pton(AF_INET, ip, &address->sin_addr);
	EQUAL(ioctl(fd, SIOCSIFADDR, &request), 0);
	EQUAL(ioctl(fd, SIOCGIFFLAGS, &request), 0);
	request.ifr_flags |= IFF_UP | IFF_RUNNING;
	EQUAL(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	close(fd);
}

/* On the standard's wire every endpoint has port 4793, so each test has a network of its own, with two addresses. */
static void own_addresses(void)
{
	if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET)) {
		printf("skipped: no network namespace: %s\n", strerror(errno));
		exit(0);
	}
	set_address("lo", a_ip);
	set_address("lo:1", b_ip);
}

static void open_at(struct node *n, const char *ip)
{
	struct want want = plain;
	want.source = ip;
	abi_open(n, &want);
}

/* Inserts an endpoint by the text of its address. */
static fi_addr_t insert_text(struct node *n, const char *ip, unsigned port, const char *fields)
{
	char text[128], shown[128];
	struct sockaddr_in name;
	fi_addr_t addr = FI_ADDR_UNSPEC;
	size_t len = sizeof(name), room = sizeof(shown);
	int end = snprintf(text, sizeof(text), "uet:%s", ip);
	if (port)
		end += snprintf(text + end, sizeof(text) - end, ":%u", port);
	snprintf(text + end, sizeof(text) - end, "%s", fields);
	EQUAL(fi_av_insertsvc(n->av, text, NULL, &addr, 0, NULL), 1);
	EQUAL(fi_av_lookup(n->av, addr, &name, &len), 0);
	fi_av_straddr(n->av, &name, shown, &room);
	if (strncmp(shown, "uet:", 4) || !strstr(shown, ip))
		FAIL("%s is shown as %s", text, shown);
	return addr;
}

static unsigned port_of(const struct node *n)
{
	return ntohs(n->name.sin_port);
}

/* Messages both ways at once: tagged ones, and every third one untagged. */
static void exchange(fi_addr_t a_to_b, fi_addr_t b_to_a)
{
	static const size_t lens[] = {1, 8, 1023, 1024, 1025, 1416, 1417, 8192, 8193, 70000, 300000, LARGEST};
	struct node *ends[2] = {&a, &b};
	fi_addr_t to[2] = {a_to_b, b_to_a};
	struct fi_cq_tagged_entry e;
	for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		size_t len = lens[i];
		for (unsigned side = 0; side < 2; side++) {
			struct node *n = ends[side];
			abi_fill(out[side], len, i * 2 + side);
			memset(in[side], 0, len);
			/* The tagged ones of b arrive before their receive is posted. */
			if (i % 3 == 2)
				EQUAL(fi_recv(n->ep, in[side], LARGEST, NULL, to[side], in[side]), 0);
			else if (side == 0)
				EQUAL(fi_trecv(n->ep, in[side], LARGEST, NULL, to[side], i, 0, in[side]), 0);
		}
		for (unsigned side = 0; side < 2; side++) {
			struct node *n = ends[side];
			if (i % 3 == 2)
				RETRY(n, fi_senddata(n->ep, out[side], len, NULL, 40 + i, to[side], out[side]));
			else
				RETRY(n, fi_tsend(n->ep, out[side], len, NULL, to[side], i, out[side]));
		}
		if (i % 3 != 2) {
			turns(200);
			EQUAL(fi_trecv(b.ep, in[1], LARGEST, NULL, b_to_a, i, 0, in[1]), 0);
		}
		for (unsigned side = 0; side < 2; side++) {
			for (int seen = 0; seen != 3;) {
				abi_expect(ends[side], ends[!side], &e);
				int received = e.op_context == in[side];
				seen |= received ? 1 : 2;
				if (received) {
					EQUAL(e.len, len);
					EQUAL(e.data, i % 3 == 2 ? 40 + i : 0);
				}
			}
		}
		for (unsigned side = 0; side < 2; side++)
			abi_verify(in[side], len, i * 2 + !side);
	}
}

/* Writes to b's memory and reads them back. */
static void access_memory(fi_addr_t a_to_b)
{
	static const size_t lens[] = {1, 1024, 1417, 100000};
	struct fid_mr *mr;
	struct fi_cq_tagged_entry e;
	EQUAL(fi_mr_reg(b.domain, region, sizeof(region), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
	uint64_t base = b.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)region : 0;
	uint64_t key = fi_mr_key(mr);
	for (unsigned i = 0; i < 4; i++) {
		size_t len = lens[i];
		abi_fill(out[0], len, 90 + i);
		memset(in[0], 0, len);
		RETRY(&a, fi_write(a.ep, out[0], len, NULL, a_to_b, base + 5, key, &contexts[i]));
		abi_expect(&a, &b, &e);
		RETRY(&a, fi_read(a.ep, in[0], len, NULL, a_to_b, base + 5, key, &contexts[i]));
		abi_expect(&a, &b, &e);
		abi_verify(region + 5, len, 90 + i);
		abi_verify(in[0], len, 90 + i);
	}
	EQUAL(fi_close(&mr->fid), 0);
}

static void talk(const char *fields)
{
	own_addresses();
	open_at(&a, a_ip);
	open_at(&b, b_ip);
	int fixed = strcmp(getenv("FI_SQUALL_WIRE"), "uet") == 0;
	if (fixed)
		CHECK(port_of(&a) == 4793 && port_of(&b) == 4793);
	fi_addr_t a_to_b = insert_text(&a, b_ip, fixed ? 0 : port_of(&b), fields);
	fi_addr_t b_to_a = insert_text(&b, a_ip, port_of(&a), fields);
	exchange(a_to_b, b_to_a);
	access_memory(a_to_b);
	abi_close(&a);
	abi_close(&b);
	CHECK(statistic("rx_payload_bytes") > 3000000);
	EQUAL(statistic("fault_dropped") > 0, getenv("FI_SQUALL_FAULT") != NULL);
}

static void standard_wire(void)
{
	talk("");
}

static void standard_wire_with_loss(void)
{
	talk(",index=15,initiator=17");
}

static void suet_wire(void)
{
	talk("");
}

static void suet_wire_with_loss(void)
{
	talk(",index=3");
}

/* Opens an endpoint at a_ip that is refused with these words in the log. */
static int refused(const struct want *want, const char *words[], int n)
{
	struct node other;
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	log_begin();
	memset(&other, 0, sizeof(other));
	other.info = abi_info(want);
	EQUAL(fi_fabric(other.info->fabric_attr, &other.fabric, NULL), 0);
	EQUAL(fi_domain(other.fabric, other.info, &other.domain, NULL), 0);
	EQUAL(fi_av_open(other.domain, &av_attr, &other.av, NULL), 0);
	EQUAL(fi_cq_open(other.domain, &cq_attr, &other.cq, NULL), 0);
	EQUAL(fi_endpoint(other.domain, other.info, &other.ep, NULL), 0);
	EQUAL(fi_ep_bind(other.ep, &other.av->fid, 0), 0);
	EQUAL(fi_ep_bind(other.ep, &other.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	int rc = fi_enable(other.ep);
	abi_close(&other);
	log_says(words, n);
	return rc;
}

static void a_job_key_is_refused(void)
{
	struct want want = plain;
	own_addresses();
	want.source = a_ip;
	want.ep_key = "abababababababab";
	const char *words[] = {"FI_SQUALL_WIRE=uet", "job key", "FI_SQUALL_KEY_FILE", "FI_SQUALL_WIRE=squall"};
	EQUAL(refused(&want, words, 4), -FI_EACCES);
}

/* Every endpoint of the wire needs the one port, so one address has one endpoint. */
static void a_taken_port_is_refused(void)
{
	struct want want = plain;
	own_addresses();
	open_at(&a, a_ip);
	want.source = a_ip;
	const char *words[] = {"FI_SQUALL_WIRE=uet", a_ip, "4793", "taken", "another IP address"};
	EQUAL(refused(&want, words, 5), -FI_EADDRINUSE);
	abi_close(&a);
}

static void another_port_is_refused(void)
{
	struct want want = plain;
	own_addresses();
	want.source = a_ip;
	const char *words[] = {"FI_SQUALL_PORT=5000-5001", "4793", "unset FI_SQUALL_PORT"};
	EQUAL(refused(&want, words, 3), -FI_EINVAL);
}

/* Each wrong part of an address is named. */
static void wrong_addresses_are_named(void)
{
	static const struct {
		const char *text, *part;
	} wrong[] = {
		{"uet:10.0.0", "\"10.0.0\" is no IP address"},
		{"uet:10.0.0.1:70000", "\"10.0.0.1:70000\" is no IP address"},
		{"uet:10.0.0.1,pid=4096", "\"pid=4096\" is not a number from 0 to 4095"},
		{"uet:10.0.0.1,rank=1", "\"rank\" is none of pid"},
	};
	own_addresses();
	open_at(&a, a_ip);
	for (int i = 0; i < 4; i++) {
		fi_addr_t addr;
		log_begin();
		int inserted = fi_av_insertsvc(a.av, wrong[i].text, NULL, &addr, 0, NULL);
		log_says((const char *[]){wrong[i].text, wrong[i].part, "uet:IP[:PORT]"}, 3);
		CHECK(inserted <= 0);
	}
	/* Endpoints of this wire have one port only. */
	struct fi_cq_tagged_entry e;
	fi_addr_t addr;
	EQUAL(fi_av_insertsvc(a.av, "uet:10.0.0.1:4794", NULL, &addr, 0, NULL), 1);
	log_begin();
	ssize_t rc = fi_send(a.ep, buf, 8, NULL, addr, NULL);
	log_says((const char *[]){"10.0.0.1:4794", "port 4793", "uet:10.0.0.1"}, 3);
	EQUAL(rc, -FI_EINVAL);
	EQUAL(fi_cq_read(a.cq, &e, 1), -FI_EAGAIN);
	abi_close(&a);
}

/* Runs b, with a parameter of its own, in another process that answers until its parent closes the pipe. */
static pid_t other_process(const char *name, const char *value, int *until)
{
	int ready[2], end[2];
	char byte;
	EQUAL(pipe(ready) + pipe(end), 0);
	EQUAL(fcntl(end[0], F_SETFL, O_NONBLOCK), 0);
	pid_t child = fork();
	if (child == 0) {
		struct fid_mr *mr;
		close(end[1]);
		setenv(name, value, 1);
		open_at(&b, b_ip);
		uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
		EQUAL(fi_mr_reg(b.domain, region, sizeof(region), access, 0, KEY, 0, &mr, NULL), 0);
		EQUAL(fi_recv(b.ep, in[1], LARGEST, NULL, FI_ADDR_UNSPEC, NULL), 0);
		EQUAL(write(ready[1], "x", 1), 1);
		while (read(end[0], &byte, 1) != 0)
			(void)fi_cq_read(b.cq, NULL, 0);
		EQUAL(fi_close(&mr->fid), 0);
		abi_close(&b);
		exit(0);
	}
	close(end[0]);
	EQUAL(read(ready[0], &byte, 1), 1);
	*until = end[1];
	return child;
}

static void end_process(pid_t child, int until)
{
	int status = 0;
	close(until);
	EQUAL(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* a's last operation fails, and its error says all of these. */
static void expect_text(int err, const char *words[], int n)
{
	struct fi_cq_err_entry failed;
	abi_expect_error(&a, NULL, &failed);
	CHECK(failed.op_context == out[0]);
	EQUAL(failed.err, err);
	const char *text = fi_cq_strerror(a.cq, failed.prov_errno, failed.err_data, NULL, 0);
	for (int i = 0; i < n; i++)
		if (!strstr(text, words[i]))
			FAIL("the text does not say %s but: %s", words[i], text);
}

/* The peer refuses requests of another job. */
static void peers_of_another_job(void)
{
	int until;
	own_addresses();
	pid_t child = other_process("FI_SQUALL_JOB", "9", &until);
	open_at(&a, a_ip);
	struct iovec iov = {out[0], 8};
	struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = insert_text(&a, b_ip, 0, ""), .context = out[0]};
	EQUAL(fi_sendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE), 0);
	expect_text(FI_EACCES, (const char *[]){b_ip, "same FI_SQUALL_JOB", "BadJobId"}, 3);
	abi_close(&a);
	end_process(child, until);
	CHECK(statistic("rx_misaddressed") >= 1);
}

/* A peer with shorter packets, then with longer ones: messages arrive nevertheless, and a read that the peer's packets
 * are too short for names the cure. */
static void peers_with_another_payload_size(void)
{
	static const char *const mtu[2] = {"1200", "9000"};
	own_addresses();
	for (int i = 0; i < 2; i++) {
		int until;
		struct fi_cq_tagged_entry e;
		pid_t child = other_process("FI_SQUALL_MTU", mtu[i], &until);
		setenv("FI_SQUALL_MTU", "2200", 1);
		open_at(&a, a_ip);
		fi_addr_t to = insert_text(&a, b_ip, 0, "");
		struct iovec iov = {out[0], 5000};
		struct fi_msg msg = {.msg_iov = &iov, .iov_count = 1, .addr = to, .context = out[0]};
		EQUAL(fi_sendmsg(a.ep, &msg, FI_TRANSMIT_COMPLETE), 0);
		abi_expect(&a, NULL, &e);
		EQUAL(fi_read(a.ep, out[0], 50000, NULL, to, 0, KEY, out[0]), 0);
		if (i == 0)
			expect_text(FI_EREMOTEIO, (const char *[]){b_ip, "payload size", "FI_SQUALL_MTU"}, 3);
		else
			abi_expect(&a, NULL, &e);
		abi_close(&a);
		end_process(child, until);
	}
	CHECK(statistic("rx_other_payload") >= 3);
}

static const struct test tests[] = {
	TEST(standard_wire, NULL, NULL, 0, {"FI_SQUALL_WIRE=uet"}),
	TEST(standard_wire_with_loss, "loss=1%,seed=5", NULL, 0, {"FI_SQUALL_WIRE=uet"}),
	TEST(suet_wire, NULL, NULL, 0, {"FI_SQUALL_WIRE=suet"}),
	TEST(suet_wire_with_loss, "loss=1%,seed=4", NULL, 0, {"FI_SQUALL_WIRE=suet"}),
	TEST(a_job_key_is_refused, NULL, NULL, 1, {"FI_SQUALL_WIRE=uet"}),
	TEST(a_taken_port_is_refused, NULL, NULL, 1, {"FI_SQUALL_WIRE=uet"}),
	TEST(another_port_is_refused, NULL, NULL, 1, {"FI_SQUALL_WIRE=uet", "FI_SQUALL_PORT=5000-5001"}),
	TEST(wrong_addresses_are_named, NULL, NULL, 1, {"FI_SQUALL_WIRE=uet"}),
	TEST(peers_of_another_job, NULL, NULL, 0, {"FI_SQUALL_WIRE=uet"}),
	TEST(peers_with_another_payload_size, NULL, NULL, 0, {"FI_SQUALL_WIRE=uet"}),
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
