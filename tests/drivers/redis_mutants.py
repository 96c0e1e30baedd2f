"""Deliberate mistakes in the Lua of the Redis driver that the contract's cases shall notice.

A mistake is a piece of a file's text and what stands there instead, and the themes of the suite that shall notice it.
`test_mutants_redis.py` makes them.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    themes: tuple[str, ...]


MUTANTS = (
    # The fence
    Mutant("token check dropped", "lib/46_plain_acks", "and found[2] == token and", "and", ("fence",)),
    Mutant("token check dropped in the fence", "lib/95_fence", "if held ~= token then return 3 end", "", ("fence",)),
    Mutant("state not checked", "lib/95_fence", "elseif job.state ~= 'active' then", "elseif false then", ("fence",)),
    Mutant("settled after expiry", "lib/46_plain_acks", "and (tonumber(found[3]) or 0) > th.now", "", ("lease",)),
    Mutant(
        "expiry compared with <",
        "lib/46_plain_acks",
        "(tonumber(found[3]) or 0) > th.now",
        "(tonumber(found[3]) or 0) >= th.now",
        ("lease",),
    ),
    Mutant(
        "expiry in the fence compared with <",
        "lib/95_fence",
        "if over > th.now then return 0 end",
        "if over >= th.now then return 0 end",
        ("lease",),
    ),
    Mutant("a lease may shrink", "extend", "if wanted > over then", "if true then", ("lease",)),
    Mutant(
        "only the record is extended", "extend", "call('ZADD', safe_key(q, 'active'), n(over), id)", "", ("reserve",)
    ),
    Mutant(
        "old tokens forgotten at expiry",
        "lib/50_placement",
        "'th_xt', job.lease_token or ''",
        "'th_xt', ''",
        ("lease",),
    ),
    # Repeats
    Mutant(
        "settle applied twice",
        "settle",
        "elseif refused == 0 then",
        "elseif refused == 0 or refused == 2 then",
        ("repeat", "settle"),
    ),
    Mutant("repeats not remembered", "lib/46_plain_acks", "'th_st', settled)", "'th_st', '')", ("repeat",)),
    Mutant(
        "repeats of any kind",
        "settle",
        "job.th_st == kind .. token",
        "string.sub(job.th_st or '', 2) == token",
        ("repeat",),
    ),
    Mutant(
        "a repeat outlives the next lease", "lib/90_reserve", "add(fields, 'th_st', '')", "local _ = 0", ("repeat",)
    ),
    Mutant("a retry ends nowhere", "settle", "th.place(q, id, job, outcome[5] or nil, fields)", "", ("settle",)),
    Mutant("known ids stored again", "enqueue", "if known[id] then", "if false then", ("enqueue", "idempotency")),
    Mutant("known plain ids stored again", "enqueue_plain", "then return 'SLOW' end", "then end", ("enqueue",)),
    # Time and order
    Mutant(
        "due, and over, a millisecond late",
        "lib/50_placement",
        "'-inf', n(th.now), 'WITHSCORES'",
        "'-inf', n(th.now - 1), 'WITHSCORES'",
        ("run_at", "lease"),
    ),
    Mutant(
        "scheduled jobs start at once",
        "lib/50_placement",
        "if run_at and run_at > now then",
        "if false then",
        ("run_at",),
    ),
    Mutant("arrival forgotten", "lib/50_placement", "if a.seq ~= b.seq then return a.seq < b.seq end", "", ("order",)),
    Mutant(
        "the time of joining forgotten",
        "lib/50_placement",
        "if a.at ~= b.at then return a.at < b.at end",
        "",
        ("order",),
    ),
    Mutant(
        "nobody is lined up first",
        "lib/50_placement",
        "    th.move_due(q)\n    add(fields",
        "    add(fields",
        ("order",),
    ),
    Mutant("an enqueue lines up nobody first", "lib/80_store", "    th.move_due(q)\n", "", ("order",)),
    Mutant("a plain enqueue lines up nobody first", "enqueue_plain", "or has_due(q, now) then", "then", ("order",)),
    Mutant("only one is lined up", "lib/50_placement", "max(FEW, floor(slice_left / 2))", "1", ("order",)),
    Mutant(
        "jobs of a call in the order of their kinds",
        "lib/80_store",
        "      append(q, plain)\n      place_other",
        "      place_other",
        ("order", "enqueue", "flows"),
    ),
    Mutant("priority the wrong way round", "lib/50_placement", "n(-pri)", "n(pri)", ("order",)),
    Mutant(
        "low priorities before the line", "lib/90_reserve", "(positive and tonumber(head[2]) > 0)", "false", ("order",)
    ),
    Mutant(
        "expired jobs join now",
        "lib/50_placement",
        "return {id = id, at = at, seq = seq, gid = job.gid",
        "return {id = id, at = th.now, seq = seq, gid = job.gid",
        ("order", "groups"),
    ),
    # Counting
    Mutant("lost leases not counted", "lib/90_reserve", "lost = lost + 1", "lost = lost", ("lost",)),
    Mutant("releases not counted", "release", "whole(job.th_lost) + 1", "whole(job.th_lost)", ("lost", "release")),
    Mutant(
        "lost kept by an outcome",
        "settle",
        "if attempts ~= failures then add(fields, 'th_lost', '') end",
        "",
        ("lost",),
    ),
    Mutant("deliveries not counted", "lib/90_reserve", "n(attempt + 1 + off)", "n(attempt + off)", ("reserve",)),
    Mutant(
        "attempts not recorded",
        "settle",
        "add(fields, 'th_fail', n(attempts), 'th_att'",
        "add(fields, 'th_fail', n(failures), 'th_att'",
        ("settle",),
    ),
    # Groups and pause
    Mutant(
        "pause ignored", "reserve", "and call('EXISTS', key(queues[index], 'paused')) == 0 then", "then", ("pause",)
    ),
    Mutant(
        "pause ignored by the quick",
        "reserve_plain",
        "call('EXISTS', key(q, 'paused'), ",
        "call('EXISTS', ",
        ("pause",),
    ),
    Mutant("group limit ignored", "lib/40_groups", "n(th.inflight(q, gid) + 1)", "'0'", ("groups",)),
    Mutant(
        "group place freed twice by the ack",
        "ack_plain",
        "th.free_place(acks[first], acks[first + 1], gid)",
        "th.free_place(acks[first], acks[first + 1], gid) th.free_place(acks[first], '', gid)",
        ("group_capacity", "groups"),
    ),
    Mutant(
        "group place not freed by the ack",
        "ack_plain",
        "th.free_place(acks[first], acks[first + 1], gid)",
        "",
        ("group_capacity", "groups"),
    ),
    Mutant(
        "group place not freed by what else ends a lease",
        "lib/50_placement",
        "> 0 then free_place_of(q, id, job) end",
        "> 0 then end",
        ("group_capacity",),
    ),
    Mutant(
        "group place not freed by expiry",
        "lib/50_placement",
        "if one.held then free_place_of(q, one.id, one.held) end",
        "",
        ("group_capacity",),
    ),
    Mutant(
        "group place freed by a waiting job",
        "lib/50_placement",
        "th.group_ready(q, job.gid)\n      return true",
        "th.free_place(q, id, job.gid)\n      return true",
        ("group_capacity",),
    ),
    Mutant(
        "limits of later jobs taken",
        "lib/40_groups",
        "(finite(try('GET', at)) or 0) <= 0 then",
        "true then",
        ("groups",),
    ),
    Mutant("a busy group first", "lib/40_groups", "turn = tonumber(last[2]) + MARGIN", "turn = 0", ("turns",)),
    # Flows
    Mutant(
        "dependents released before the last ack",
        "lib/60_flows",
        "== 1 and call('SCARD', open) == 0 then",
        "== 1 then",
        ("flows",),
    ),
    Mutant("dependents of members not released", "settle", "if found[7] then th.release(q, id) end", "", ("flows",)),
    Mutant("runs of members not closed", "settle", "th.close(q, id, {th_flow", "local _ = ({th_flow", ("retention",)),
    Mutant(
        "group place of a flow member not freed",
        "settle",
        "found[5] ~= '' then th.free_place(q, id, found[5]) end",
        "false then end",
        ("group_capacity", "groups", "flows"),
    ),
    Mutant("dependents not released", "lib/60_flows", "send(dependent[3], 'done', dependent[1], id)", "", ("flows",)),
    Mutant(
        "unknown dependencies taken",
        "lib/80_store",
        "if not found[1] and not found[2] then return false end",
        "",
        ("races",),
    ),
    Mutant("handed over nowhere", "settle", "if heir then th.hand_over(", "if false then th.hand_over(", ("spawn",)),
    Mutant(
        "cancelled runs take jobs",
        "lib/60_flows",
        "return call('HEXISTS', flow_key(flow), '!') == 1",
        "return false",
        ("flow_status",),
    ),
    Mutant(
        "the outcome without its spawn", "settle", "local number = spawn and", "local number = false and", ("spawn",)
    ),
    # Admin and retention
    Mutant("keys not looked up", "lib/80_store", "call('HGET', safe_key(q, 'th:keys'), name)", "nil", ("idempotency",)),
    Mutant("delete takes what is needed", "admin", "if needed > 0 then return needed end", "", ("admin",)),
    Mutant(
        "prune takes what is needed", "prune", "if open_dependents(q, id) > 0 then return true end", "", ("retention",)
    ),
    Mutant(
        "prune takes open runs",
        "prune",
        "if not flow_is_open(job.th_flow) then return false end",
        "if true then return false end",
        ("retention",),
    ),
    Mutant("prune takes the moment itself", "prune", "'(' .. n(lane", "n(lane", ("retention",)),
    Mutant(
        "what was needed is never pruned", "lib/60_flows", "if left == 0 then unpark(q, id) end", "", ("retention",)
    ),
    Mutant("release takes the leases of all workers", "lib/90_reserve", "found[1] ~= worker or ", "", ("release",)),
    Mutant("release takes what is kept", "lib/90_reserve", "or kept[found[5] or '']", "", ("release",)),
    Mutant(
        "damaged records handed out",
        "lib/30_records",
        "if not payload then return 'payload is missing' end",
        "",
        ("damaged",),
    ),
    # Attempts, notes, and how long jobs are kept
    Mutant("the beginning forgotten", "lib/47_plain_leases", ", 'th_began', now)", ")", ("attempts",)),
    Mutant("a later beginning forgotten", "lib/90_reserve", ", 'th_began', now}", "}", ("attempts",)),
    Mutant(
        "the worker forgotten at the end",
        "lib/50_placement",
        "if job.th_worker then add(fields, 'th_ran', job.th_worker) end",
        "",
        ("attempts",),
    ),
    Mutant(
        "a release is no loss",
        "release",
        "add(fields, 'th_la', n(th.now) ..",
        "add({}, '', n(th.now) ..",
        ("attempts",),
    ),
    Mutant(
        "a cancelled job was lost",
        "lib/50_placement",
        "if job.th_la then add(fields, 'th_la', '') end",
        "",
        ("attempts",),
    ),
    Mutant(
        "the trail of an ack is thrown away",
        "settle",
        "and not outcome[11] and quick_ack",
        "and quick_ack",
        ("attempts",),
    ),
    Mutant(
        "an empty class replaces another",
        "settle",
        "add_given(fields, 'th_err', outcome[9])",
        "add(fields, 'th_err', outcome[9])",
        ("attempts",),
    ),
    Mutant(
        "a class outlives a failure without one",
        "settle",
        "'th_err', outcome[12], 'th_fp', outcome[13])",
        "'th_fp', outcome[13])",
        ("attempts",),
    ),
    Mutant("notes not stored", "extend", "if lease[4] then add(fields, 'th_note', lease[4]) end", "", ("notes",)),
    Mutant("a requeue keeps the note", "admin", ", 'th_note', ''}", "}", ("notes", "admin")),
    Mutant("keep_for has no effect", "lib/60_flows", "local till = th.kept_until(keep, finished)", "", ("keep_for",)),
    Mutant("what is kept is kept for ever", "prune", "  prune(q, 'th:kept')\n", "", ("keep_for",)),
    Mutant("keep_for counts from the retention on", "prune", "and kept_before or th.now", "and th.now", ("keep_for",)),
    Mutant(
        "keep_for a millisecond short", "lib/30_records", "math.ceil(micros / 1000)", "micros / 1000 - 1", ("keep_for",)
    ),
    Mutant("keep_for beside plain jobs", "lib/80_store", " or job[14] or job[18])", " or job[14])", ("keep_for",)),
    # Amending
    Mutant(
        "any version is amended",
        "amend",
        "if delivered ~= deliveries or whole(job.th_ed) ~= edits then return 2 end",
        "",
        ("amend",),
    ),
    Mutant("edits not counted", "amend", "n(whole(job.th_ed) + 1)", "n(whole(job.th_ed))", ("amend",)),
    Mutant("a done job is amended", "amend", "if state == 'completed' then return 'done' end", "", ("amend",)),
    Mutant("an amended job keeps its place", "amend", "if moves and", "if false and", ("amend",)),
    Mutant("every amended job moves", "amend", "if moves and", "if", ("amend",)),
    Mutant("an amended job looks plain", "amend", ", 'th_f', '1'}", "}", ("amend",)),
    Mutant("the old priority counts", "amend", "    job.pri = values.th_pri or job.pri\n", "", ("amend",)),
    Mutant(
        "a blocked job keeps its time",
        "amend",
        "if values.due_ms ~= nil then add(fields, 'due_ms', run_at and n(run_at) or '') end",
        "",
        ("amend",),
    ),
    Mutant(
        "a new priority forgets the time", "amend", "run_at = finite(job.due_ms) or false", "run_at = false", ("amend",)
    ),
    # Steps
    Mutant("a step under any lease", "save_memo", "if refused > 0 then return refused end", "", ("steps",)),
    Mutant("a new payload keeps the steps", "amend", "add(fields, 'th_memo', '')", "add(fields)", ("steps",)),
    # Reading
    Mutant("priorities do not wait", "heads", "  oldest_by_priority(q, earliest)\n", "", ("heads",)),
    Mutant("groups do not wait", "heads", "ipairs(th.groups(q))", "ipairs({})", ("heads",)),
    Mutant("what is due does not wait", "heads", "earliest(first and first.at)", "", ("heads",)),
    Mutant("an ended lease keeps its place", "heads", "if one.held then freed", "if false then freed", ("heads",)),
    Mutant("the other turn", "heads", "~= '1' and 1 or 0", "~= '1' and 0 or 1", ("heads",)),
    Mutant("too early is next", "heads", "if over and over > now then return nil, true end", "", ("heads",)),
    Mutant("leases never end", "upcoming", "{'delayed', 'active'}", "{'delayed'}", ("upcoming",)),
    Mutant("nothing falls due", "upcoming", "{'delayed', 'active'}", "{'active'}", ("upcoming",)),
    Mutant("what is due comes again", "upcoming", "local after, first = '(' ..", "local after, first =", ("upcoming",)),
    Mutant(
        "payloads in every page",
        "lib/97_read",
        "name ~= 'payload' and name ~= 'th_res'",
        "name ~= 'th_res'",
        ("filters",),
    ),
    Mutant("the order of ids in any case", "list_ids", "newest and ids_before or ids_after", "ids_after", ("filters",)),
    Mutant(
        "the order of flows in any case", "list_flows", "  if newest then\n", "  if false then\n", ("flow_listing",)
    ),
    Mutant(
        "the flow of the cursor again", "list_flows", "after == '' and '-' or '(' .. after", "'-'", ("flow_listing",)
    ),
    Mutant("figures replaced", "add_figures", "redis.pcall('HINCRBY', at, field, number)", "nil", ("figures",)),
    Mutant(
        "old figures count",
        "add_figures",
        "call('SET', '{th:fig}:oldest', n(oldest_ms))\n",
        "",
        ("figures",),
    ),
    # What was seen, and the audit
    Mutant("any job is as it was seen", "admin", "elseif seen and not is_as(", "elseif false and is_as(", ("seen",)),
    Mutant("deliveries not compared", "admin", "bounded(deliveries) == seen[1] and", "", ("seen",)),
    Mutant("edits not compared", "admin", "bounded(shown(job.th_ed)) == seen[2] and", "", ("seen",)),
    Mutant("the end not compared", "admin", " and finished_at(q, id, job) == seen[3]", "", ("seen",)),
    Mutant(
        "a plain ack has no end",
        "admin",
        "    at = max(at, shown(call('HGET', job_key(q, id), 'updated_ms') or ''))\n",
        "",
        ("seen",),
    ),
    Mutant("entries of anyone", "read_audit", "(not by or who == by)", "true", ("audit",)),
    Mutant("entries in no order", "put_audit", "  call('ZADD', order, '0', place)\n", "", ("audit",)),
    Mutant("an entry is not replaced", "put_audit", "call('HSET', values", "call('HSETNX', values", ("audit",)),
    Mutant("entries are kept for ever", "put_audit", "local old = most > 0 and", "local old = false and", ("audit",)),
    Mutant("`since` has no effect", "read_audit", "'[' .. stop", "'-'", ("audit",)),
    Mutant("`until` has no effect", "read_audit", "'(' .. start", "'+'", ("audit",)),
    # Schedules
    Mutant(
        "a schedule changes from any revision",
        "change_schedules",
        "  if revision ~= expect then return 0 end\n",
        "",
        ("schedules",),
    ),
    Mutant(
        "a change fires before it compares",
        "change_schedules",
        "  if revision ~= expect then return 0 end\n",
        "  if #jobs > 0 then th.send(to[1], 'fire', jobs, to[2]) end\n  if revision ~= expect then return 0 end\n",
        ("schedules",),
    ),
    Mutant(
        "a change that was repeated is refused",
        "change_schedules",
        "if revision == (to and to[2]) then",
        "if not revision and not to then",
        ("schedules",),
    ),
    Mutant(
        "a schedule that is gone cannot be deleted",
        "change_schedules",
        "if revision == (to and to[2]) then",
        "if revision and to and revision == to[2] then",
        ("schedules",),
    ),
    Mutant("schedules store no jobs", "change_schedules", "if #jobs > 0 then", "if false then", ("schedule_jobs",)),
    Mutant(
        "known jobs of schedules are stored again",
        "lib/80_store",
        "elseif not known[id] then",
        "else",
        ("schedule_jobs",),
    ),
    Mutant(
        "no schedule is ever due",
        "lib/schedules_read",
        "if moment ~= NEVER then sets",
        "if false then sets",
        ("schedules",),
    ),
    Mutant(
        "names of one queue for all",
        "lib/schedules_read",
        "['names:' .. q] = name",
        "['names:q'] = name",
        ("schedules", "schedule_pages"),
    ),
    Mutant(
        "what is due hides what comes next",
        "due_schedules",
        "    following = call('ZRANGEBYLEX', at, '[' .. before, '+', 'LIMIT', '0', '1')[1]\n",
        "    following = nil\n",
        ("schedule_pages",),
    ),
    Mutant(
        "what comes next in any queue",
        "due_schedules",
        "if following and (not upcoming or is_before(following, string.sub(upcoming, 1, 18))) then",
        "if following then",
        ("schedule_pages",),
    ),
    Mutant(
        "what comes next in the first queue",
        "due_schedules",
        "if following and (not upcoming or is_before(following, string.sub(upcoming, 1, 18))) then",
        "if following and not upcoming then",
        ("schedule_pages",),
    ),
    Mutant(
        "due ones of the first queue",
        "due_schedules",
        "if #places > 0 then",
        "if #found == 0 then",
        ("schedule_pages",),
    ),
)
