"""The recurrences of python-dateutil, with RFC 5545's rule for wall times that do not exist: left out, not counted.

Reads one case a line from standard input, writes the moments of each as one line. Zones are read from files in the tz
database's encoding, so that both sides go by the same edition of it."""

import datetime as calendar
import json
import sys
import types
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import dateutil.rrule
from dateutil import tz
from dateutil.rrule import rrulestr

zones = {}

# dateutil looks for what never comes up to the year 9999; here it stops after the horizon.
bounded = types.ModuleType("datetime")
bounded.__dict__.update(calendar.__dict__)
dateutil.rrule.datetime = bounded


def zone(path):
    if path not in zones:
        with open(path, "rb") as file:
            zones[path] = ZoneInfo.from_file(file)
    return zones[path]


def moment(wall, rules):
    there = wall.replace(tzinfo=rules, fold=0)
    if not tz.datetime_exists(there):
        return None
    return int(there.astimezone(timezone.utc).timestamp())


def expand(case):
    rules = zone(case["zone"])
    bounded.MAXYEAR = datetime.fromtimestamp(case["horizon"], timezone.utc).year + 1
    start = datetime.fromisoformat(case["start"])
    moments = {}
    if case["rule"]:
        try:
            walls = rrulestr(case["rule"], dtstart=start)
        except ValueError as error:
            # What can give nothing is refused by dateutil and empty here.
            if "empty set" not in str(error):
                raise
            walls = []
        given = 0
        for wall in walls:
            if wall.timestamp() > case["horizon"] + 3 * 86400:
                break
            at = moment(wall, rules)
            if at is None:
                continue
            if case["until"] is not None and at > case["until"]:
                break
            if case["count"] is not None and given >= case["count"]:
                break
            given += 1
            moments.setdefault(at, wall)
    else:
        at = moment(start, rules)
        if at is not None:
            moments[at] = start
    for date in case["dates"]:
        wall = datetime.fromisoformat(date)
        at = moment(wall, rules)
        if at is not None:
            moments.setdefault(at, wall)
    left_out = {datetime.fromisoformat(date) for date in case["except"]}
    return sorted(at for at, wall in moments.items() if wall not in left_out and at < case["horizon"])


for line in sys.stdin:
    print(json.dumps(expand(json.loads(line))), flush=False)
