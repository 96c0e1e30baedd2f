"""Counting again, from the records alone, what the Postgres driver keeps counted: what does not fit is a mistake."""

import psycopg

CHECKS = {
    "a job in both tables": "select id from jobs join history using (id)",
    "an edge without its ends": """
        select dependency || ' -> ' || dependent from edges
        where dependency not in (select id from records) or dependent not in (select id from records)""",
    "a blocked job that nothing holds": """
        select j.id from jobs j where j.state = 0 and not exists (
            select from edges e where e.dependent = j.id
            and not exists (select from history h where h.id = e.dependency and h.state = 5))""",
    "a blocked job with a wrong count": """
        select j.id || ': ' || j.open || ' instead of ' || x.n from jobs j, lateral (
            select count(*) as n from edges e where e.dependent = j.id
            and not exists (select from history h where h.id = e.dependency and h.state = 5)) as x
        where j.state = 0 and j.open <> x.n""",
    "a job that runs before its dependency": """
        select j.id from jobs j join edges e on e.dependent = j.id where j.state > 0
        and not exists (select from history h where h.id = e.dependency and h.state = 5)""",
    "a group with wrong counters": """
        select format('%s/%s: %s and %s instead of %s and %s', coalesce(g.queue, x.queue), coalesce(g.grp, x.grp),
                      g.inflight, g.waiting, x.inflight, x.waiting)
        from groups g full join (
            select queue, grp, count(*) filter (where state = 3) as inflight,
                   count(*) filter (where state in (2, 4)) as waiting
            from jobs where grp is not null group by queue, grp) as x on x.queue = g.queue and x.grp = g.grp
        where coalesce(g.inflight, 0) <> coalesce(x.inflight, 0) or coalesce(g.waiting, 0) <> coalesce(x.waiting, 0)""",
    "a key without its record": """
        select k.id from keys k where not exists (
            select from records r where r.id = k.id and r.queue = k.queue and r.key = k.key)""",
    "a record without its key": """
        select r.id from records r where r.key is not null and not exists (
            select from keys k where k.queue = r.queue and k.key = r.key and k.id = r.id)""",
    "a live job of a cancelled flow": "select j.id from jobs j join flows f on f.flow_id = j.flow_id",
}


def mistakes(address: str) -> list[str]:
    """What is wrong in a store that no call uses at this moment."""
    found = []
    with psycopg.connect(address) as connection:
        connection.execute("set search_path = taskharbor")
        for name, query in CHECKS.items():
            rows = connection.execute(query.encode()).fetchall()
            found += [f"{name}: {row[0]}" for row in rows]
    return found
