"""Views that enqueue, and fail afterwards if they are asked to."""

from django.http import HttpRequest, JsonResponse

from shop.models import Note
from shop.tasks import write


def create(request: HttpRequest) -> JsonResponse:
    Note.objects.create(text="from the view")
    result = write.enqueue("from the job")
    if request.GET.get("fail"):
        raise RuntimeError("asked to")
    return JsonResponse({"id": result.id})


async def create_async(request: HttpRequest) -> JsonResponse:
    result = await write.aenqueue("from the job")
    return JsonResponse({"id": result.id})
