"""What the site offers."""

from typing import Any, cast

from drf_spectacular.utils import extend_schema
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from compute_site.core.scopes import Scope
from environments.access import Person
from jobs.api.offers import Offer, offered_environments, offers


class EnvironmentList(APIView):
    """All environments that the caller may use."""

    scope = Scope.READ

    @extend_schema(operation_id="environments_list", responses=Offer(many=True))
    def get(self, request: Request) -> Response:
        """Environments that you may use, with their resources, free now, prices, limits and queue."""
        return Response(Offer(offers(offered_environments(cast(Person, request.user))), many=True).data)


class EnvironmentOne(APIView):
    """One environment."""

    scope = Scope.READ

    @extend_schema(operation_id="environments_retrieve", responses=Offer)
    def get(self, request: Request, public_id: Any) -> Response:
        """One environment that you may use, with its resources, free now, prices, limits and queue."""
        environment = get_object_or_404(offered_environments(cast(Person, request.user)), public_id=public_id)
        return Response(Offer(offers([environment])[0]).data)
