"""Three views: order a cake, look at the order, look at the job."""

from django.db import transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from bakery.models import Order
from bakery.tasks import bake
from taskharbor import JobNotFound
from taskharbor.django import harbor


@csrf_exempt
@require_POST
@transaction.atomic
def create(request: HttpRequest) -> JsonResponse:
    """Store an order with the job that bakes it: both, or neither."""
    order = Order.objects.create(cake=request.POST["cake"])
    result = bake.enqueue(order.pk)
    if not order.cake.isalpha():
        transaction.set_rollback(True)
        return JsonResponse({"error": "not a cake"}, status=422)
    return JsonResponse({"order": order.pk, "job": result.id}, status=202)


def show(request: HttpRequest, id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=id)
    return JsonResponse({"cake": order.cake, "baked": order.baked})


def job(request: HttpRequest, id: str) -> JsonResponse:
    try:
        handle = harbor.job(id)
        state, progress = handle.info().state, handle.progress()
    except JobNotFound:
        raise Http404 from None
    return JsonResponse({"state": state, "note": progress.note if progress else ""})
