"""The schedules of the stand-in."""


class crontab:
    def __init__(self, minute="*", hour="*", day_of_week="*", day_of_month="*", month_of_year="*"):
        self._orig_minute, self._orig_hour, self._orig_day_of_week = minute, hour, day_of_week
        self._orig_day_of_month, self._orig_month_of_year = day_of_month, month_of_year

    def __repr__(self):
        days = f"{self._orig_day_of_month} {self._orig_month_of_year} {self._orig_day_of_week}"
        return f"<crontab: {self._orig_minute} {self._orig_hour} {days} (m/h/dM/MY/d)>"
