"""How much of the machine other processes use, from /proc; without it, nothing is ever found.

The processors' busy time, and what the host took away, minus the time of this process and of the session it started.
"""
import os
import resource
import time

THRESHOLD = 0.1  # of a core
TICKS_S = 0.04  # /proc/stat counts in ticks of every core


def busy_s():
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def session_s(session):
    """What the processes of the session have used, with those of their children that have ended."""
    total = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) == session:
                total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


class ForeignLoad:
    def __init__(self, patience_s):
        self.session = None  # the id of the session that is ours
        self.patience_s = patience_s  # how long all waiting may take

    def others_s(self):
        try:
            busy = busy_s()
        except (OSError, ValueError):
            return 0
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return busy - sum(u.ru_utime + u.ru_stime for u in used) - (session_s(self.session) if self.session else 0)

    def start(self):
        self.began, self.others_then = time.monotonic(), self.others_s()

    def since_start(self, least_s=0):
        """Whether others used the machine since start(), and starts anew; None before least_s have passed."""
        took = time.monotonic() - self.began
        if took < least_s:
            return None
        found = self.others_s() - self.others_then > THRESHOLD * took + TICKS_S
        self.start()
        return found

    def wait_for_quiet(self, at_most_s=5):
        end = time.monotonic() + min(at_most_s, self.patience_s)
        begin = time.monotonic()
        while True:
            self.start()
            time.sleep(0.3)
            if not self.since_start() or time.monotonic() > end:
                break
        self.patience_s = max(0, self.patience_s - (time.monotonic() - begin - 0.3))
