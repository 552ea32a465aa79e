# SPDX-License-Identifier: MIT
# usage: awk -f days.awk
# Writes the data of docs/tour.md: days.txt, 1200 sentences in a fixed pseudo-random order, and
# days.jsonl, seven conversations about the same facts.
BEGIN {
    n = split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday", day)
    for (i = 0; i < 1200; i++) {
        x = (x * 75 + 74) % 65537
        k = x % n
        print "After " day[k + 1] " comes " day[(k + 1) % n + 1] "." > "days.txt"
    }
    for (k = 0; k < n; k++)
        printf "{\"messages\": [{\"role\": \"user\", \"content\": \"What comes after %s?\"}, " \
               "{\"role\": \"assistant\", \"content\": \"%s.\"}]}\n", \
               day[k + 1], day[(k + 1) % n + 1] > "days.jsonl"
}
