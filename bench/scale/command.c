/* A Slurm command that asks the simulated slurmctld: cheap to start, as Slurm's own commands are.
 *
 * Sends its arguments, each ended by a NUL, to the socket beside it (DIR/ctl.sock for DIR/bin-.../squeue), and
 * copies the answer: its first byte is the exit status, the rest goes to standard output, or to standard error
 * where the status is not 0.
 */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int fail(const char *what) {
    perror(what);
    return 1;
}

static int put(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done <= 0) return -1;
        data += done;
        size -= (size_t)done;
    }
    return 0;
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char own[4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length < 0) return fail("readlink");
    own[length] = 0;
    /* The file itself lies in DIR; the names in DIR/bin-... are links to it. */
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s/ctl.sock", dirname(own)) >=
        (int)sizeof address.sun_path) {
        fputs("the directory's name is too long for a socket\n", stderr);
        return 1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return fail("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        fputs("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", stderr);
        return 1;
    }
    for (int i = 0; i < argc; i++)
        if (put(fd, argv[i], strlen(argv[i]) + 1)) return fail("write");
    shutdown(fd, SHUT_WR);
    static char buffer[1 << 16];
    char status;
    if (read(fd, &status, 1) != 1) return fail("read");
    ssize_t got;
    while ((got = read(fd, buffer, sizeof buffer)) > 0)
        if (put(status ? 2 : 1, buffer, (size_t)got)) return 1;
    return got < 0 ? fail("read") : status;
}
