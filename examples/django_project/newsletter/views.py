import json
from uuid import UUID

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from newsletter.tasks import send_letter


@csrf_exempt
async def subscribe(request: HttpRequest) -> JsonResponse:
    result = await send_letter.aenqueue(to=json.loads(request.body)["address"])
    return JsonResponse({"letter": result.id, "status": result.status}, status=201)


async def show_letter(request: HttpRequest, letter_id: UUID) -> JsonResponse:
    result = await send_letter.aget_result(str(letter_id))
    value = result.return_value if result.is_finished else None
    return JsonResponse({"status": result.status, "value": value, "attempts": result.attempts})
